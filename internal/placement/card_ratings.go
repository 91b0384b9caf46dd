package placement

import "strings"

// ratings are dense half-precision TFLOPS from the makers' data sheets, by the model names that
// drivers and node labels use.
var ratings = map[string]float64{
	"P4": 5.5, "P100": 21.2, "T4": 65, "V100": 125, "V100M16": 125, "V100M32": 125,
	"A10": 125, "A30": 165, "A40": 150, "A100": 312, "L4": 121, "L40": 181, "L40S": 362,
	"H100": 989, "H200": 989, "H20": 148, "B200": 2250,
}

func (e *Engine) rating(card *Card) float64 {
	if card.TFLOPS > 0 {
		return card.TFLOPS
	}
	if r := e.opts.Ratings[card.Model]; r > 0 {
		return r
	}
	return Rating(card.Model)
}

// Rating finds the chip in a model's name: drivers say "NVIDIA A100-SXM4-40GB", labels "NVIDIA-H100-80GB-HBM3",
// people "H100-80G".
func Rating(model string) float64 {
	for word := range strings.FieldsFuncSeq(model, func(r rune) bool { return r == ' ' || r == '-' || r == '_' }) {
		if r := ratings[strings.ToUpper(word)]; r > 0 {
			return r
		}
	}
	return 0
}
