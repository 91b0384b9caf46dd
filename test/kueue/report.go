package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// result is what became of a suite's specs.
type result struct {
	suite  string
	passed int
	failed []spec
	left   int // were not run
}

// spec is one that did not pass.
type spec struct{ text, where, why string }

// cause is why some specs cannot pass, or should not.
type cause struct {
	suite, spec *regexp.Regexp
	text        string
}

// readCauses reads a line for each: suite, spec (regular expressions) and reason, with " | " between them.
func readCauses(path string) ([]cause, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []cause
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, " | ")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s:%d: a suite, a spec and a reason are expected, with \" | \" between them", path, i+1)
		}
		suite, err1 := regexp.Compile("^(?:" + parts[0] + ")$")
		spec, err2 := regexp.Compile(parts[1])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		all = append(all, cause{suite, spec, parts[2]})
	}
	return all, nil
}

// of a spec that failed; empty if it is not known.
func causeOf(all []cause, suite string, s spec) string {
	for _, c := range all {
		if c.suite.MatchString(suite) && c.spec.MatchString(s.text) {
			return c.text
		}
	}
	return ""
}

// readReport reads ginkgo's: each spec, what of the set-up failed, and why the suite ended early, if it did.
func readReport(path string) (specs, setUp, cut []outcome, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, err
	}
	var reports []struct {
		SpecialSuiteFailureReasons []string

		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			NumAttempts             int
			Failure                 struct {
				Message  string
				Location struct {
					FileName   string
					LineNumber int
				}
			}
		}
	}
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, nil, nil, err
	}
	for _, report := range reports {
		for _, why := range report.SpecialSuiteFailureReasons {
			cut = append(cut, outcome{Text: "the suite", State: "interrupted", Why: why})
		}
		for _, s := range report.SpecReports {
			o := outcome{Text: strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "), State: s.State, Why: s.Failure.Message}
			if file := s.Failure.Location.FileName; file != "" {
				o.Where = fmt.Sprintf("%s:%d", file[strings.LastIndex(file, "/")+1:], s.Failure.Location.LineNumber)
			}
			switch {
			case s.State == "pending":
			case s.LeafNodeType == "It":
				if s.State == passed && s.NumAttempts > 1 {
					fmt.Printf("  %s\n    passed at attempt %d\n", o.Text, s.NumAttempts)
				}
				specs = append(specs, o)
			case s.State != passed && s.State != "skipped":
				o.Text = cmp.Or(o.Text, s.LeafNodeType)
				setUp = append(setUp, o)
			}
		}
	}
	return specs, setUp, cut, nil
}

// sum counts outcomes.
func sum(suite string, all []outcome) *result {
	r := &result{suite: suite}
	for _, o := range all {
		switch {
		case o.State == passed:
			r.passed++
		case o.State == "skipped":
			r.left++
		default:
			r.failed = append(r.failed, spec{o.Text, o.Where, o.Why})
		}
	}
	slices.SortFunc(r.failed, func(a, b spec) int { return strings.Compare(a.text, b.text) })
	return r
}

// print says how it went, and returns how many failures nothing explains.
func (r *result) print(causes []cause) (unexplained int) {
	for _, s := range r.failed {
		if causeOf(causes, r.suite, s) != "" {
			continue
		}
		unexplained++
		why := strings.Join(strings.Fields(s.why), " ")
		if _, rest, ok := strings.Cut(why, "with: "); ok {
			why = rest
		}
		fmt.Printf("  %s\n    %s: %.240s\n", s.text, s.where, why)
	}
	fmt.Printf("figure kueue_suite %s: %d of %d specs pass, %d for a reason do not, %d without one; %d were not run\n",
		r.suite, r.passed, r.passed+len(r.failed), len(r.failed)-unexplained, unexplained, r.left)
	return unexplained
}

// The page has a table with a row for each suite, and below it a list for each suite with specs that do not pass.
const (
	rowsBegin, rowsEnd   = "<!-- suites -->", "<!-- end of suites -->"
	specsBegin, specsEnd = "<!-- specs -->", "<!-- end of specs -->"
)

// row is that of a suite in the page's table: its specs that pass, all of them, the tree that the program is of, and how many
// Kueue's own manager passes.
func (r *result) row(cells []string, tree string, own bool) string {
	if len(cells) != 5 {
		cells = []string{"", "", "", "", ""}
	}
	specs := fmt.Sprint(r.passed + len(r.failed) + r.left)
	if r.left > 0 {
		specs += fmt.Sprintf(", %d not run", r.left)
	}
	cells[0] = "`" + r.suite + "`"
	if own {
		cells[4] = fmt.Sprintf("%d of %s", r.passed, specs)
	} else {
		cells[1], cells[2], cells[3] = fmt.Sprint(r.passed), specs, tree
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// write puts the result into the page, in the place of an older one. Of Kueue's own manager that is a number alone.
func (r *result) write(path, tree string, own bool, causes []cause) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := between(string(data), rowsBegin, rowsEnd, func(old string) string {
		lines := strings.Split(strings.TrimSpace(old), "\n")
		var cells []string
		kept := slices.DeleteFunc(lines, func(line string) bool {
			if !strings.HasPrefix(line, "| `"+r.suite+"` |") {
				return false
			}
			cells = strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
			return true
		})
		kept = append(kept, r.row(cells, tree, own))
		slices.SortStableFunc(kept[2:], func(a, b string) int { return cmp.Compare(order(a), order(b)) })
		return "\n" + strings.Join(kept, "\n") + "\n"
	})
	if err != nil {
		return err
	}
	if own {
		return os.WriteFile(path, []byte(text), 0o600)
	}
	text, err = between(text, specsBegin, specsEnd, func(old string) string {
		sections := strings.Split(old, "\n### ")
		kept := slices.DeleteFunc(sections[1:], func(s string) bool { return strings.HasPrefix(s, "`"+r.suite+"`\n") })
		if len(r.failed) > 0 {
			var b strings.Builder
			fmt.Fprintf(&b, "`%s`\n", r.suite)
			for _, s := range r.failed {
				fmt.Fprintf(&b, "- %s: %s\n", strings.NewReplacer("<", "&lt;", "\n", " ").Replace(s.text), cmp.Or(causeOf(causes, r.suite, s), "**not explained yet**"))
			}
			kept = append(kept, b.String())
		}
		slices.SortStableFunc(kept, func(a, b string) int { return cmp.Compare(order(a), order(b)) })
		all := "\n"
		for _, s := range kept {
			all += "\n### " + strings.TrimSpace(s) + "\n"
		}
		return all
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// order is a suite's place on the page, by the name that a line begins with.
func order(line string) int {
	name := strings.Split(line, "`")
	if len(name) < 2 {
		return -1
	}
	if at := slices.Index(known, name[1]); at >= 0 {
		return at
	}
	return len(known)
}

func between(text, begin, end string, change func(string) string) (string, error) {
	head, rest, ok := strings.Cut(text, begin)
	middle, tail, found := strings.Cut(rest, end)
	if !ok || !found {
		return "", fmt.Errorf("the page lacks %q or %q", begin, end)
	}
	return head + begin + change(middle) + end + tail, nil
}
