package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Record writes down what a share is made of, at once: no reader sees half of it.
func Record(dir, id string, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	file := filepath.Join(dir, filepath.Base(id))
	if err := os.WriteFile(file+newly, data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+newly, file)
}

const newly = ".new"

// Recall reads what was written down of a share; into stays as it is if nothing was.
func Recall(dir, id string, into any) error {
	data, err := os.ReadFile(filepath.Join(dir, filepath.Base(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("what was written of slot %s: %w", id, err)
	}
	return nil
}

// Forget a share. That nothing was written of it is no error.
func Forget(dir, id string) error {
	if err := os.Remove(filepath.Join(dir, filepath.Base(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Recorded lists the shares that are written down.
func Recorded(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), newly) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}
