package design_test

import (
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/elastic-ai/elastic/"

// TestHouseListsEveryPackage: every package below internal has its row in house.md, imports no package of ours but
// those the row names, and stands below them in the table: arrows point one way.
func TestHouseListsEveryPackage(t *testing.T) {
	rows, order := houseRows(t)
	for _, pkg := range internalPackages(t) {
		allowed, ok := rows[pkg]
		if !ok {
			t.Errorf("%s is not in house.md", pkg)
			continue
		}
		for _, imported := range imports(t, pkg) {
			if !slices.ContainsFunc(allowed, func(a string) bool { return matchesPackage(a, imported) }) {
				t.Errorf("%s imports %s, which its row in house.md does not name", pkg, imported)
			}
			if slices.Index(order, imported) > slices.Index(order, pkg) {
				t.Errorf("%s imports %s, which stands below it in house.md", pkg, imported)
			}
		}
	}
}

func TestHouseListsOnlyWhatIsThere(t *testing.T) {
	rows, order := houseRows(t)
	packages := internalPackages(t)
	for _, pkg := range order {
		if !slices.Contains(packages, pkg) {
			t.Errorf("house.md lists %s, which is not there", pkg)
		}
		for _, allowed := range rows[pkg] {
			if !slices.ContainsFunc(packages, func(p string) bool { return matchesPackage(allowed, p) }) {
				t.Errorf("%s may import %s, which is not there", pkg, allowed)
			}
		}
	}
}

// TestHouseNamesFilesThatAreThere: what the page sends a reader to exists.
func TestHouseNamesFilesThatAreThere(t *testing.T) {
	rows := slices.Concat(tableRows(readHouse(t), "file"), tableRows(readHouse(t), "package"))
	if len(rows) < 25 {
		t.Errorf("found %d rows: have the tables' headings changed?", len(rows))
	}
	for _, row := range rows {
		for _, quoted := range quotedPaths(row[len(row)-1]) {
			if _, err := os.Stat(filepath.Join(root, quoted)); err != nil {
				t.Errorf("%s: %v", row[1], err)
			}
		}
	}
}

func readHouse(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("house.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// houseRows returns what each package may import, and the packages in the order of the table.
func houseRows(t *testing.T) (rows map[string][]string, order []string) {
	t.Helper()
	rows = map[string][]string{}
	for _, row := range tableRows(readHouse(t), "imports of ours") {
		allowed := below(quotedPaths(row[len(row)-1]))
		for _, pkg := range below(quotedPaths(row[0])) {
			if _, twice := rows[pkg]; twice {
				t.Errorf("%s stands in house.md twice", pkg)
			}
			rows[pkg] = allowed
			order = append(order, pkg)
		}
	}
	return rows, order
}

// below turns the short names of the tables into paths.
func below(names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, "internal/"+name)
	}
	return paths
}

// quotedPaths are what stands in backticks.
func quotedPaths(cell string) []string {
	var paths []string
	for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(cell, -1) {
		paths = append(paths, strings.Trim(quoted, "`"))
	}
	return paths
}

// matchesPackage: "a/b/..." is a/b and everything below it.
func matchesPackage(pattern, pkg string) bool {
	below, all := strings.CutSuffix(pattern, "/...")
	return pkg == below || all && strings.HasPrefix(pkg, below+"/")
}

func internalPackages(t *testing.T) []string {
	t.Helper()
	var packages []string
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(name))
		if pkg = filepath.ToSlash(pkg); !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// imports are the packages below internal that a package's code imports, tests aside.
func imports(t *testing.T, pkg string) []string {
	t.Helper()
	p, err := build.ImportDir(filepath.Join(root, pkg), 0)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, path := range p.Imports {
		if path, ok := strings.CutPrefix(path, module); ok && strings.HasPrefix(path, "internal/") {
			ours = append(ours, path)
		}
	}
	return ours
}
