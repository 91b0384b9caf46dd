package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
)

// An SPDX 2.3 document, as far as Go programs fill one.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []module       `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type module struct {
	ID       string `json:"SPDXID"`
	Name     string `json:"name"`
	Version  string `json:"versionInfo,omitempty"`
	Download string `json:"downloadLocation"`
	License  string `json:"licenseConcluded"`
	Refs     []ref  `json:"externalRefs,omitempty"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Kind    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// writeSBOM lists the modules that Go says are in each program. A file that is no Go program is listed by its name.
func writeSBOM(w io.Writer, name string, programs []string) error {
	d := &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		// Nothing in it depends on when it is made, so that two builds of one version are the same.
		Namespace: "https://github.com/elastic-ai/elastic/releases/" + name,
		Creation:  creation{Created: "1970-01-01T00:00:00Z", Creators: []string{"Tool: elastic-release"}},
	}
	for _, path := range programs {
		program := module{ID: id("Program-" + filepath.Base(path)), Name: filepath.Base(path), Download: "NOASSERTION", License: "Apache-2.0"}
		d.describe("SPDXRef-DOCUMENT", "DESCRIBES", program)
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			continue // C
		}
		d.describe(program.ID, "CONTAINS", golang(&debug.Module{Path: "std", Version: info.GoVersion}))
		for _, dep := range info.Deps {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			d.describe(program.ID, "CONTAINS", golang(dep))
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(d)
}

func (d *document) describe(element, kind string, m module) {
	if !slices.ContainsFunc(d.Packages, func(other module) bool { return other.ID == m.ID }) {
		d.Packages = append(d.Packages, m)
	}
	d.Relationships = append(d.Relationships, relationship{element, kind, m.ID})
}

func golang(m *debug.Module) module {
	return module{
		ID: id("Module-" + m.Path + "-" + m.Version), Name: m.Path, Version: m.Version, Download: "NOASSERTION", License: "NOASSERTION",
		Refs: []ref{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: fmt.Sprintf("pkg:golang/%s@%s", m.Path, m.Version)}},
	}
}

func id(text string) string { return "SPDXRef-" + notInID.ReplaceAllString(text, "-") }
