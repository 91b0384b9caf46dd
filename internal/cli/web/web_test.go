package web

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// The person's own opener is called with the link.
func TestShowOpensTheBrowser(t *testing.T) {
	folder := t.TempDir()
	said := filepath.Join(folder, "said")
	name := map[bool]string{true: "open", false: "xdg-open"}[runtime.GOOS == "darwin"]
	script := "#!/bin/sh\nprintf %s \"$1\" >" + said + ".new && mv " + said + ".new " + said + "\n"
	if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	const link = "http://127.0.0.1:1/#key=a"
	show(link)
	for end := time.Now().Add(time.Minute); ; {
		data, err := os.ReadFile(said)
		if err == nil && string(data) == link {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q, %v", data, err)
		}
		runtime.Gosched()
	}
}
