package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// progress is where a build stands, by what go prints.
type progress struct {
	say     string
	modules int // that there are to download, at most
	began   time.Time

	downloaded int
	compiling  time.Time // since when; zero before
	compiled   []string
	last       time.Time // when the last package was named
	estimate   *estimate // once the graph is known
}

// packageLine is a line of "go build -v" that names a package: one word, which no message of the compiler is.
var packageLine = regexp.MustCompile(`^[a-z0-9][^\s:]*$`)

// read takes a line of go's; false says that it is none of these, and the user's.
func (p *progress) read(line string) bool {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		p.downloaded++
	case packageLine.MatchString(line):
		if p.compiling.IsZero() {
			p.compiling = time.Now()
		}
		p.compiled, p.last = append(p.compiled, line), time.Now()
		if p.estimate != nil {
			p.estimate.started(line)
		}
	default:
		return false
	}
	return true
}

// know the graph from here on.
func (p *progress) know(g *graph) {
	if g == nil {
		return
	}
	p.estimate = newEstimate(g)
	for _, name := range p.compiled {
		p.estimate.started(name)
	}
}

// line says where it stands; empty where there is nothing to say.
func (p *progress) line(now time.Time) string {
	switch {
	case p.estimate != nil:
		return p.say + ": " + p.estimate.line(now.Sub(p.compiling))
	case len(p.compiled) > 0:
		return fmt.Sprintf("%s: %d packages", p.say, len(p.compiled))
	case p.downloaded > 0:
		return fmt.Sprintf("%s: downloading modules, %d of at most %d", p.say, p.downloaded, p.modules)
	}
	return ""
}

// done says what it took.
func (p *progress) done() string {
	if p.compiling.IsZero() {
		return ""
	}
	words := ""
	if p.downloaded > 0 {
		words = fmt.Sprintf("%d modules in %s, ", p.downloaded, short(p.compiling.Sub(p.began)))
	}
	// After the last package, which is a program's own, there is only linking.
	return fmt.Sprintf("%s: built, %s%d packages in %s, linked in %s", p.say, words, len(p.compiled), short(p.last.Sub(p.compiling)), short(time.Since(p.last)))
}
