package world

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Variant is one run of a comparison.
type Variant struct {
	Name string `json:"name"`
	*Report
}

const (
	plotWidth, plotHeight = 860, 770
	plotLeft, plotRight   = 70, 840
)

var plotColors = []string{"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f"}

// Plot draws, for each variant, cards in use and jobs that wait, over time, and what each queue of the first one uses of its
// quota.
func Plot(to io.Writer, variants []Variant) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	drawCurves(&b, variants, "cards in use", 30, 240, func(s *Sample) float64 { return float64(s.Used) })
	drawCurves(&b, variants, "jobs waiting", 280, 490, func(s *Sample) float64 { return float64(s.Waiting) })
	for i, v := range variants {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", plotRight, 44+16*i, plotColors[i%len(plotColors)], html.EscapeString(v.Name))
	}
	drawQueues(&b, variants)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// drawQueues draws the use of each queue of the first variant as a part of its quota: who has more than its share, and when.
func drawQueues(b *strings.Builder, variants []Variant) {
	if len(variants) == 0 {
		return
	}
	var queues []Variant
	first := variants[0]
	for _, g := range first.ByQueue {
		if g.Quota == 0 {
			continue
		}
		part := &Report{Samples: make([]Sample, len(first.Samples))}
		for i, s := range first.Samples {
			part.Samples[i] = Sample{At: s.At, Used: 100 * s.Queues[g.Name] / g.Quota}
		}
		at := len(queues)
		queues = append(queues, Variant{Name: g.Name, Report: part})
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", plotRight, 544+16*at, plotColors[at%len(plotColors)], html.EscapeString(g.Name))
	}
	drawCurves(b, queues, "% of its quota, by queue", 530, 740, func(s *Sample) float64 { return float64(s.Used) })
}

func drawCurves(b *strings.Builder, variants []Variant, title string, top, bottom float64, of func(*Sample) float64) {
	first, last, most := int64(never), int64(0), 1.0
	for _, v := range variants {
		for i := range v.Samples {
			first, last = min(first, v.Samples[i].At), max(last, v.Samples[i].At)
			most = max(most, of(&v.Samples[i]))
		}
	}
	if last <= first {
		return
	}
	x := func(at float64) float64 {
		return plotLeft + (at-float64(first))/float64(last-first)*(plotRight-plotLeft)
	}
	y := func(v float64) float64 { return bottom - v/most*(bottom-top) }
	fmt.Fprintf(b, `<path d="M%d %.0fV%.0fH%d" fill="none" stroke="black"/>`+"\n", plotLeft, top, bottom, plotRight)
	fmt.Fprintf(b, `<text transform="translate(16 %.0f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottom)/2, title)
	for i := range 5 {
		at, v := float64(first)+float64(last-first)*float64(i)/4, most*float64(i)/4
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="middle">%.1f h</text>`+"\n", x(at), bottom+16, at/3600)
		fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%.0f</text>`+"\n", plotLeft-6, y(v)+4, v)
	}
	for i, v := range variants {
		b.WriteString(`<polyline fill="none" stroke-width="1.5" stroke="` + plotColors[i%len(plotColors)] + `" points="`)
		for k := range v.Samples {
			fmt.Fprintf(b, "%.1f,%.1f ", x(float64(v.Samples[k].At)), y(of(&v.Samples[k])))
		}
		b.WriteString(`"/>` + "\n")
	}
}
