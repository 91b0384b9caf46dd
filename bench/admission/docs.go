package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// writeDocs puts the measured tables between their markers in benchmarks.md and
// draws the plot. What was not measured in this run stays as it is.
func writeDocs(folder string, results []result, scaling []series) error {
	page := filepath.Join(folder, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, r := range results {
		if text, err = between(text, "admission-"+r.w.name, comparison(r)); err != nil {
			return err
		}
	}
	if len(scaling) > 0 {
		if text, err = between(text, "admission-scaling", scalingTable(scaling)); err != nil {
			return err
		}
		plot := filepath.Join(folder, "benchmarks", "admission-scaling.svg")
		if err := os.MkdirAll(filepath.Dir(plot), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(plot, []byte(drawing(scaling)), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, text, 0o644)
}

// between replaces what stands between a pair of markers.
func between(text []byte, name, content string) ([]byte, error) {
	begin, end := []byte("<!-- begin "+name+" -->\n"), []byte("<!-- end "+name+" -->")
	i := bytes.Index(text, begin)
	j := bytes.Index(text, end)
	if i < 0 || j < i {
		return nil, fmt.Errorf("benchmarks.md has no place for %q", name)
	}
	return bytes.Join([][]byte{text[:i+len(begin)], []byte(content), text[j:]}, nil), nil
}

func comparison(r result) string {
	var b strings.Builder
	b.WriteString("| | CPU per admission | objects allocated per admission | admissions | evictions | done after (virtual) |\n|---|---|---|---|---|---|\n")
	for i, s := range []run1{r.ours, r.kueue} {
		micros, allocs := perAdmission(s)
		fmt.Fprintf(&b, "| %s | %.1f µs | %.1f | %s | %s | %.1f s |\n", []string{"Elastic", "Kueue"}[i],
			micros, allocs, thousands(s.admissions), thousands(s.evictions), float64(s.ended)/1000)
	}
	fmt.Fprintf(&b, "| **ratio** | **%.1f** (%.1f per workload) | %.1f | | | |\n", r.cpuRatio,
		float64(r.kueue.cost.cpu)/float64(r.ours.cost.cpu), r.allocsRatio)
	return b.String()
}

func scalingTable(scaling []series) string {
	var b strings.Builder
	b.WriteString("| shapes | pending workloads | CPU in all | per workload | objects per workload | against n log n |\n|---|---|---|---|---|---|\n")
	for _, s := range scaling {
		for _, p := range s.points {
			fmt.Fprintf(&b, "| %s | %s | %.3f s | %.2f µs | %.1f | %.2f |\n", thousands(s.shapes), thousands(p.n), p.total().Seconds(), p.micros, p.allocs, growth(s.points[0], p))
		}
	}
	return b.String()
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The plot: both axes logarithmic; per series one line measured and, dashed, n log n
// through its first point.
const (
	plotWidth, plotHeight = 640, 400
	left, right           = 70, 20
	top, bottom           = 50, 50
)

var colours = []string{"#0b6bcb", "#c2410c"}

// axis maps a value onto pixels between two powers of ten.
type axis struct {
	low, high int // exponents
	from, to  float64
}

func newAxis(low, high, from, to float64) axis {
	return axis{int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high))), from, to}
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-float64(a.low))/float64(a.high-a.low)*(a.to-a.from)
}

func drawing(scaling []series) string {
	seconds := func(p point) float64 { return p.total().Seconds() }
	lowX, highX, lowY, highY := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, s := range scaling {
		for _, p := range s.points {
			lowX, highX = min(lowX, float64(p.n)), max(highX, float64(p.n))
			lowY, highY = min(lowY, seconds(p)), max(highY, seconds(p), s.ideal(p))
		}
	}
	x, y := newAxis(lowX, highX, left, plotWidth-right), newAxis(lowY, highY, plotHeight-bottom, top)

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, plotHeight)
	for e := x.low; e <= x.high; e++ {
		at := x.at(math.Pow10(e))
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, top, plotHeight-bottom, at, plotHeight-bottom+18, thousands(int(math.Pow10(e))))
	}
	for e := y.low; e <= y.high; e++ {
		at := y.at(math.Pow10(e))
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g s</text>`+"\n", left, at, plotWidth-right, left-8, at+4, math.Pow10(e))
	}
	for i, s := range scaling {
		c := colours[i]
		b.WriteString(line(s.points, x, y, s.ideal, `stroke="`+c+`" stroke-dasharray="4 4" opacity="0.5"`))
		b.WriteString(line(s.points, x, y, seconds, `stroke="`+c+`" stroke-width="2"`))
		for _, p := range s.points {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(float64(p.n)), y.at(seconds(p)), c)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s shapes (dashed: n log n from the first point)</text>`+"\n", left, 18+16*i, c, thousands(s.shapes))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">pending workloads; CPU time to admit and finish them all</text>`+"\n", (left+plotWidth-right)/2, plotHeight-12)
	b.WriteString("</svg>\n")
	return b.String()
}

// ideal is the time of n log n through the series' first point.
func (s series) ideal(p point) float64 { return p.total().Seconds() / growth(s.points[0], p) }

func line(points []point, x, y axis, v func(point) float64, style string) string {
	var b strings.Builder
	for i, p := range points {
		fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(i, 1)], x.at(float64(p.n)), y.at(v(p)))
	}
	return fmt.Sprintf(`<path d="%s" fill="none" %s/>`+"\n", b.String(), style)
}
