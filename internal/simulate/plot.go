package simulate

import (
	"fmt"
	"io"
	"strings"
)

const (
	plotWidth, plotHeight = 720, 440
	plotLeft, plotTop     = 60, 20
	plotRight, plotBottom = 700, 390
)

var plotColors = []string{"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f"}

// drawCurves draws what is left unallocated against what has arrived, from 80 percent on, where policies differ.
func drawCurves(w io.Writer, reports []Report) error {
	const from = 0.8
	to, most := from, 0.01
	for _, r := range reports {
		for _, p := range r.Curve {
			if p.Arrived >= from {
				to, most = max(to, p.Arrived), max(most, 1-p.Allocated)
			}
		}
	}
	x := func(arrived float64) float64 { return plotLeft + (arrived-from)/(to-from+1e-9)*(plotRight-plotLeft) }
	y := func(unallocated float64) float64 { return plotBottom - unallocated/most*(plotBottom-plotTop) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", plotLeft, plotTop, plotBottom, plotRight)
	for i := range 6 {
		arrived, unallocated := from+(to-from)*float64(i)/5, most*float64(i)/5
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(arrived), plotBottom+18, 100*arrived)
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%.1f</text>`+"\n", plotLeft-6, y(unallocated)+4, 100*unallocated)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">arrived demand, %% of all cards</text>`+"\n", (plotLeft+plotRight)/2, plotBottom+40)
	fmt.Fprintf(&b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">unallocated, %%</text>`+"\n", (plotTop+plotBottom)/2)
	for i, r := range reports {
		color := plotColors[i%len(plotColors)]
		b.WriteString(`<polyline fill="none" stroke-width="2" stroke="` + color + `" points="`)
		for _, p := range r.Curve {
			if p.Arrived >= from {
				fmt.Fprintf(&b, "%.1f,%.1f ", x(p.Arrived), y(1-p.Allocated))
			}
		}
		b.WriteString(`"/>` + "\n")
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", plotRight, plotTop+14+16*i, color, r.Policy)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
