// Package design_test holds the designs to the code: words the glossary retired do not come back,
// and the places it names exist.
package design_test

import (
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestRetiredWordsStayOut(t *testing.T) {
	rules := readRules(t)
	for _, file := range sources(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range check(rules, file, string(text)) {
			t.Error(f)
		}
	}
}

// TestGlossaryNamesWhatIsThere: every path in the glossary's tables exists, and no term stands there twice.
func TestGlossaryNamesWhatIsThere(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range tableRows(readGlossary(t), "whose word") {
		if term := row[0]; seen[term] {
			t.Errorf("%s stands in the glossary twice", term)
		}
		seen[row[0]] = true
		for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(row[2], -1) {
			if _, err := os.Stat(filepath.Join(root, strings.Trim(quoted, "`"))); err != nil {
				t.Errorf("%s: %v", row[0], err)
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("found %d terms: has the table's heading changed?", len(seen))
	}
}

// rule is a row of the table of retired words.
type rule struct {
	retired  [][]string // each a word, or the words of a phrase
	say      string
	names    bool // identifiers and file names only
	in, out  []string
	excepted [][]string // phrases that may stand
}

func readGlossary(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var rules []rule
	for _, row := range tableRows(readGlossary(t), "where") {
		rules = append(rules, parseRule(row))
	}
	if len(rules) == 0 {
		t.Fatal("the glossary has no table of retired words")
	}
	return rules
}

// tableRows returns the cells of all tables whose last column has that heading.
func tableRows(text, last string) [][]string {
	var rows [][]string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[len(cells)-1] == last:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}

func parseRule(row []string) rule {
	r := rule{say: row[1]}
	for _, phrase := range list(row[0]) {
		r.retired = append(r.retired, strings.Fields(phrase))
	}
	where, names := strings.CutPrefix(row[2], "names:")
	r.names = names
	for _, place := range list(where) {
		switch phrase, excepted := strings.CutPrefix(place, "not "); {
		case excepted:
			r.excepted = append(r.excepted, strings.Fields(strings.Trim(phrase, `"`)))
		case strings.HasPrefix(place, "!"):
			r.out = append(r.out, place[1:])
		default:
			r.in = append(r.in, place)
		}
	}
	return r
}

func list(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		items = append(items, strings.TrimSpace(item))
	}
	return items
}

// covers says whether the rule is about a file.
func (r *rule) covers(file string) bool {
	matches := func(place string) bool {
		page := path.Ext(file) == ".md"
		switch place {
		case "all code":
			return !page
		case "docs":
			return page
		}
		full, _ := path.Match(place, file)
		base, _ := path.Match(place, path.Base(file))
		return full || base || strings.HasPrefix(file, place+"/")
	}
	return slices.ContainsFunc(r.in, matches) && !slices.ContainsFunc(r.out, matches)
}

// check lists what a file says that it should not.
func check(rules []rule, file, text string) []string {
	words := append(split(path.Base(file), 1, true), read(file, text)...)
	var hits []hit
	for i := range rules {
		if rules[i].covers(file) {
			hits = append(hits, rules[i].find(words)...)
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.line, b.line) })
	var found []string
	for _, h := range hits {
		found = append(found, fmt.Sprintf("%s:%d: %q: say %s", file, h.line, h.text, h.say))
	}
	return found
}

// hit is a retired word or phrase, and what to say.
type hit struct {
	text, say string
	line      int
}

// find returns where the rule's words and phrases stand.
func (r *rule) find(words []word) []hit {
	var found []hit
	for _, phrase := range r.retired {
		for i := range words {
			if !startsWith(words[i:], phrase) || r.names && !words[i].name || r.excuses(words, i) {
				continue
			}
			found = append(found, hit{strings.Join(phrase, " "), r.say, words[i].line})
		}
	}
	return found
}

// excuses: the word at i is part of a phrase that may stand.
func (r *rule) excuses(words []word, i int) bool {
	return slices.ContainsFunc(r.excepted, func(phrase []string) bool {
		for before := range phrase {
			if i >= before && startsWith(words[i-before:], phrase) {
				return true
			}
		}
		return false
	})
}

func startsWith(words []word, phrase []string) bool {
	for i, p := range phrase {
		if i >= len(words) || words[i].text != p {
			return false
		}
	}
	return true
}

// word is one word of a file, in lower case, out of an identifier (name) or of prose.
type word struct {
	text string
	line int
	name bool
}

// read splits a file into words. Where identifiers end and prose begins is known for Go and C.
func read(file, text string) []word {
	switch path.Ext(file) {
	case ".go":
		return readGo(text)
	case ".c", ".h":
		return readC(text)
	}
	return split(text, 1, false)
}

func readGo(text string) []word {
	var words []word
	files := token.NewFileSet()
	f := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(f, []byte(text), nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return words
		}
		if tok == token.IDENT || tok == token.COMMENT || tok == token.STRING {
			words = append(words, split(lit, f.Line(pos), tok == token.IDENT)...)
		}
	}
}

// prose in C: comments and strings.
var prose = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"`)

func readC(text string) []word {
	var words []word
	line, from := 1, 0
	add := func(to int, name bool) {
		words = append(words, split(text[from:to], line, name)...)
		line += strings.Count(text[from:to], "\n")
		from = to
	}
	for _, at := range prose.FindAllStringIndex(text, -1) {
		add(at[0], true)
		add(at[1], false)
	}
	add(len(text), true)
	return words
}

// split finds the words in prose and identifiers: HTTPServer, backInLine, CARD_FILE.
func split(text string, line int, name bool) []word {
	var words []word
	start := -1
	for i := range len(text) + 1 {
		if start >= 0 && (i == len(text) || !letter(text[i]) || begins(text, i)) {
			words = append(words, word{strings.ToLower(text[start:i]), line, name})
			start = -1
		}
		switch {
		case i == len(text):
		case text[i] == '\n':
			line++
		case start < 0 && letter(text[i]):
			start = i
		}
	}
	return words
}

// begins: a capital begins a word after a small letter, and before one; but the s of GPUs belongs to what is before it.
func begins(text string, i int) bool {
	if !capital(text[i]) {
		return false
	}
	small := func(at int) bool { return at < len(text) && letter(text[at]) && !capital(text[at]) }
	plural := i+1 < len(text) && text[i+1] == 's' && !small(i+2)
	return small(i-1) || small(i+1) && !plural
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || capital(c) }

func capital(c byte) bool { return 'A' <= c && c <= 'Z' }

// sources lists the files that people write: code and pages, not what is generated or built.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		switch {
		case d.IsDir() && file != "." && skipped(file):
			return fs.SkipDir
		case !d.IsDir() && written(file):
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 500 {
		t.Fatalf("found %d files: is %s the root?", len(files), root)
	}
	return files
}

// skipped folders hold what is built or generated.
func skipped(dir string) bool {
	return strings.HasPrefix(path.Base(dir), ".") || slices.Contains([]string{"bin", "native/cuda/build", "deploy/crd", "deploy/install"}, dir)
}

var extensions = []string{".go", ".c", ".h", ".tab", ".sh", ".awk", ".yaml", ".proto", ".md"}

func written(file string) bool {
	generated := strings.HasSuffix(file, ".pb.go") || strings.HasPrefix(path.Base(file), "zz_generated") || file == "docs/reference/cli.md"
	exempt := file == "docs/design/glossary.md" || file == "docs/design/glossary_test.go" || file == "CHANGELOG.md"
	return !generated && !exempt && (slices.Contains(extensions, path.Ext(file)) || path.Base(file) == "Makefile")
}

func TestCheck(t *testing.T) {
	rules := []rule{
		parseRule([]string{"heir, heirs", "nominated workload", "all code, docs"}),
		parseRule([]string{"claim", "nomination", "internal/admission"}),
		parseRule([]string{"keep, kept", "reserved", "names: internal, !*_test.go"}),
		parseRule([]string{"machine", "node", `all code, not "this machine"`}),
		parseRule([]string{"in line", "pending", "all code"}),
	}
	for name, test := range map[string]struct {
		file, text string
		want       []string
	}{
		"in a comment":              {"cmd/x.go", "package x\n\n// the heir waits\n", []string{`cmd/x.go:3: "heir": say nominated workload`}},
		"in a string":               {"cmd/x.go", "package x\nvar s = \"no heir\"", []string{`cmd/x.go:2: "heir": say nominated workload`}},
		"in a camel-case name":      {"cmd/x.go", "package x\nfunc callHeirs() {}", []string{`cmd/x.go:2: "heirs": say nominated workload`}},
		"in a C name":               {"native/x.c", "/* 1\n2 */\nint next_heir;", []string{`native/x.c:3: "heir": say nominated workload`}},
		"in a constant":             {"native/x.h", "#define MAX_HEIRS 4", []string{`native/x.h:1: "heirs": say nominated workload`}},
		"in a script":               {"tools/x.sh", "# an heir\n", []string{`tools/x.sh:1: "heir": say nominated workload`}},
		"in a page":                 {"docs/x.md", "An heir.", []string{`docs/x.md:1: "heir": say nominated workload`}},
		"in a file's name":          {"internal/queue/keep.go", "package queue", []string{`internal/queue/keep.go:1: "keep": say reserved`}},
		"part of a longer word":     {"cmd/x.go", "package x // heirloom, their", nil},
		"outside its folder":        {"internal/gpu/x.go", "package gpu\ntype Claim struct{}", nil},
		"inside its folder":         {"internal/admission/x.go", "package admission\ntype Claim struct{}", []string{`internal/admission/x.go:2: "claim": say nomination`}},
		"in a folder beside":        {"internal/admissions/x.go", "package x\ntype Claim struct{}", nil},
		"prose, names alone matter": {"internal/x.go", "package x // keep it", nil},
		"name, names alone matter":  {"internal/x.go", "package x\nfunc keepIt() {}", []string{`internal/x.go:2: "keep": say reserved`}},
		"left out":                  {"internal/x_test.go", "package x\nfunc keepIt() {}", nil},
		"a phrase that may stand":   {"cmd/x.go", "package x // on this machine", nil},
		"the same word without it":  {"cmd/x.go", "package x // on a machine", []string{`cmd/x.go:1: "machine": say node`}},
		"a phrase":                  {"cmd/x.go", "package x // stands in line", []string{`cmd/x.go:1: "in line": say pending`}},
		"a phrase in a name":        {"cmd/x.go", "package x\nfunc backInLine() {}", []string{`cmd/x.go:2: "in line": say pending`}},
		"a word of the phrase":      {"cmd/x.go", "package x // a line", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := check(rules, test.file, test.text); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	for text, want := range map[string]string{
		"backInLine":    "back in line",
		"HTTPServer":    "http server",
		"MAX_SEATS":     "max seats",
		"ElasticGPUs":   "elastic gpus",
		"card_file2":    "card file",
		"it's in  line": "it s in line",
	} {
		var got []string
		for _, w := range split(text, 1, false) {
			got = append(got, w.text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: split into %q, want %s", text, got, want)
		}
	}
}
