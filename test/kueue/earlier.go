package main

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
)

// outcome is what became of a spec. A suite that takes long is run in parts, so outcomes of several runs are put together.
type outcome struct {
	Text  string
	State string
	Where string `json:",omitempty"`
	Why   string `json:",omitempty"`
}

const passed = "passed"

// ended says that the spec came to its end, which one of an interrupted run did not.
func (o outcome) ended() bool {
	return !slices.Contains([]string{"", "skipped", "interrupted", "timedout", "aborted"}, o.State)
}

// earlier reads the outcomes of runs before this one.
func earlier(path string) ([]outcome, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []outcome
	return all, json.Unmarshal(data, &all)
}

// together is what this run says, and what runs before it say of specs that did not end in it. Some specs have the same
// text: they come in the same order in each run.
func together(before, now []outcome) []outcome {
	older := map[string][]outcome{}
	for _, o := range before {
		older[o.Text] = append(older[o.Text], o)
	}
	var all []outcome
	for _, o := range now {
		if !o.ended() {
			o = outcome{Text: o.Text, State: "skipped"}
		}
		if same := older[o.Text]; len(same) > 0 {
			older[o.Text] = same[1:]
			if !o.ended() {
				o = same[0]
			}
		}
		all = append(all, o)
	}
	return all
}

// done is a regular expression of the specs that passed, each text to its end; empty if none did.
func done(before []outcome) string {
	left := map[string]bool{}
	for _, o := range before {
		left[o.Text] = left[o.Text] || o.State != passed
	}
	var all []string
	for _, o := range before {
		if !left[o.Text] {
			all = append(all, regexp.QuoteMeta(o.Text))
			left[o.Text] = true
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "(?:" + strings.Join(all, "|") + ")$"
}

func writeOutcomes(path string, all []outcome) error {
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
