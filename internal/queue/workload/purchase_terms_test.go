package workload

import (
	"strings"
	"testing"
	"time"
)

// What a job says is read or refused, and one bad annotation does not take the others with it.
func TestPurchaseTerms(t *testing.T) {
	const deadline, price, checkpoint = "elasticai.io/deadline", "elasticai.io/delay-price", "elasticai.io/checkpoint"
	noon := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		said  map[string]string
		want  PurchaseTerms
		wrong string
	}{
		"nothing":              {},
		"all":                  {said: map[string]string{deadline: "2026-11-18T12:00:00Z", price: "12.5", checkpoint: "30m"}, want: PurchaseTerms{noon, 12.5, 30 * time.Minute}},
		"another time zone":    {said: map[string]string{deadline: "2026-11-18T14:00:00+02:00"}, want: PurchaseTerms{Deadline: noon}},
		"no time":              {said: map[string]string{deadline: "tomorrow", price: "1"}, want: PurchaseTerms{DelayPrice: 1}, wrong: `annotation elasticai.io/deadline "tomorrow": want a time`},
		"a negative price":     {said: map[string]string{price: "-1"}, wrong: "from 0 to 1000000"},
		"no number":            {said: map[string]string{price: "NaN"}, wrong: "from 0 to 1000000"},
		"an absurd price":      {said: map[string]string{price: "1e300"}, wrong: "from 0 to 1000000"},
		"saves all the time":   {said: map[string]string{checkpoint: "1ns"}, wrong: "from 1m to 720h"},
		"saves never":          {said: map[string]string{checkpoint: "0"}, wrong: "from 1m to 720h"},
		"a very long text":     {said: map[string]string{deadline: strings.Repeat("x", 1<<18)}, wrong: "…"},
		"two that are no good": {said: map[string]string{deadline: "", checkpoint: ""}, wrong: "annotation elasticai.io/checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PurchaseTermsOf(test.said)
			if !got.Deadline.Equal(test.want.Deadline) || got.DelayPrice != test.want.DelayPrice || got.Checkpoint != test.want.Checkpoint {
				t.Errorf("%+v", got)
			}
			if (err != nil) != (test.wrong != "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || len(err.Error()) > 500) {
				t.Errorf("error %v", err)
			}
		})
	}
}
