package world

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Variant is one run of a comparison.
type Variant struct {
	Name string `json:"name"`
	*Report
}

const (
	plotWidth, plotTop  = 860, 30
	plotLeft, plotRight = 70, 840
	// A panel with its axis, and the curves in it.
	panelHeight, curveHeight = 250, 210
)

var plotColors = []string{"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f"}

// panel is curves of one kind.
type panel struct {
	title, of string // of a variant; empty: of all
	curves    []curve
}

// Plot draws cards in use and jobs that wait over time, a curve for each variant, and for each variant what its queues use of
// their quota and their weighted shares.
func Plot(to io.Writer, variants []Variant) error {
	used, waiting := panel{title: "cards in use"}, panel{title: "jobs waiting"}
	for _, v := range variants {
		used.curves = append(used.curves, curveOf(v.Name, v.Samples, func(s *Sample) float64 { return float64(s.Used) }))
		waiting.curves = append(waiting.curves, curveOf(v.Name, v.Samples, func(s *Sample) float64 { return float64(s.Waiting) }))
	}
	panels := []panel{used, waiting}
	for _, v := range variants {
		ofQuota, shares := curvesOfQueues(v)
		panels = append(panels, panel{"% of its quota, by queue", v.Name, ofQuota})
		if len(shares) > 0 {
			panels = append(panels, panel{"weighted share, by queue", v.Name, shares})
		}
	}
	var b strings.Builder
	height := plotTop + panelHeight*len(panels)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	for i := range panels {
		panels[i].draw(&b, float64(plotTop+panelHeight*i))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// curvesOfQueues are, for each queue, its use as a part of its quota, who has more than its own and when; and, for those in
// cohorts, its weighted share: whether those who borrow have what their weights say.
func curvesOfQueues(v Variant) (ofQuota, shares []curve) {
	for i := range v.ByQueue {
		g := &v.ByQueue[i]
		if g.Quota > 0 {
			ofQuota = append(ofQuota, curveOf(g.Name, v.Samples, func(s *Sample) float64 { return 100 * float64(s.Queues[g.Name]) / float64(g.Quota) }))
		}
		if g.Fair != nil {
			shares = append(shares, curveOf(g.Name, v.Samples, func(s *Sample) float64 { return s.Shares[g.Name] }))
		}
	}
	return ofQuota, shares
}

// curve over time, in seconds.
type curve struct {
	name   string
	points []struct{ at, value float64 }
}

func curveOf(name string, samples []Sample, of func(*Sample) float64) curve {
	c := curve{name: name}
	for i := range samples {
		c.points = append(c.points, struct{ at, value float64 }{float64(samples[i].At), of(&samples[i])})
	}
	return c
}

// draw the curves, with their names.
func (panel *panel) draw(b *strings.Builder, top float64) {
	first, last, most := math.Inf(1), 0.0, 1.0
	for _, c := range panel.curves {
		for _, p := range c.points {
			first, last, most = min(first, p.at), max(last, p.at), max(most, p.value)
		}
	}
	if last <= first {
		return
	}
	bottom := top + curveHeight
	x := func(at float64) float64 { return plotLeft + (at-first)/(last-first)*(plotRight-plotLeft) }
	y := func(v float64) float64 { return bottom - v/most*curveHeight }
	fmt.Fprintf(b, `<path d="M%d %.0fV%.0fH%d" fill="none" stroke="black"/>`+"\n", plotLeft, top, bottom, plotRight)
	fmt.Fprintf(b, `<text transform="translate(16 %.0f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottom)/2, panel.title)
	fmt.Fprintf(b, `<text x="%d" y="%.0f">%s</text>`+"\n", plotLeft, top-8, html.EscapeString(panel.of))
	for i := range 5 {
		at, v := first+(last-first)*float64(i)/4, most*float64(i)/4
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="middle">%.1f h</text>`+"\n", x(at), bottom+16, at/3600)
		fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%.0f</text>`+"\n", plotLeft-6, y(v)+4, v)
	}
	for i, c := range panel.curves {
		color := plotColors[i%len(plotColors)]
		fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end" fill="%s">%s</text>`+"\n", plotRight, top+14+16*float64(i), color, html.EscapeString(c.name))
		b.WriteString(`<polyline fill="none" stroke-width="1.5" stroke="` + color + `" points="`)
		for _, p := range c.points {
			fmt.Fprintf(b, "%.1f,%.1f ", x(p.at), y(p.value))
		}
		b.WriteString(`"/>` + "\n")
	}
}
