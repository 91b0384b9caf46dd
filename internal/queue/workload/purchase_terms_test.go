package workload

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
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

// What a job says of its input counts as a whole or not at all, and whatever it says is bounded.
func TestInput(t *testing.T) {
	said := func(size, region string) map[string]string {
		return map[string]string{cloudv1.InputSizeAnnotation: size, cloudv1.InputRegionAnnotation: region}
	}
	for name, test := range map[string]struct {
		said  map[string]string
		want  cloud.Input
		wrong string
	}{
		"nothing":          {},
		"both":             {said: said("500Gi", "aws/us-east-1"), want: cloud.Input{Cloud: "aws", Region: "us-east-1", GiB: 500}},
		"decimal":          {said: said("1T", "gcp/us-central1"), want: cloud.Input{Cloud: "gcp", Region: "us-central1", GiB: 1e12 / (1 << 30)}},
		"no region":        {said: map[string]string{cloudv1.InputSizeAnnotation: "1Gi"}, wrong: "want elasticai.io/input-region, too"},
		"no size":          {said: map[string]string{cloudv1.InputRegionAnnotation: "aws/us-east-1"}, wrong: "want elasticai.io/input-size, too"},
		"nothing in it":    {said: said("0", "aws/us-east-1"), wrong: "want a size up to 1Ei"},
		"less than that":   {said: said("-1Gi", "aws/us-east-1"), wrong: "want a size up to 1Ei"},
		"absurdly large":   {said: said("1e300", "aws/us-east-1"), wrong: "want a size up to 1Ei"},
		"larger than all":  {said: said("2Ei", "aws/us-east-1"), wrong: "want a size up to 1Ei"},
		"no size at all":   {said: said("much", "aws/us-east-1"), wrong: "want a size up to 1Ei"},
		"an unknown cloud": {said: said("1Gi", "moon/sea"), wrong: "want a cloud and its region"},
		"no cloud":         {said: said("1Gi", "us-east-1"), wrong: "want a cloud and its region"},
		"a cloud alone":    {said: said("1Gi", "aws/"), wrong: "want a cloud and its region"},
		"very long texts":  {said: said(strings.Repeat("1", 1<<18), strings.Repeat("x", 1<<18)), wrong: "…"},
		"a long region":    {said: said("1Gi", "aws/"+strings.Repeat("x", 1<<18)), wrong: "…"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := InputOf(test.said)
			if got != test.want || (err != nil) != (test.wrong != "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || len(err.Error()) > 500) {
				t.Errorf("%+v, %v", got, err)
			}
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: test.said}}
			if in := ForEngine(wl, nil).Input; cloud.Input(in) != test.want {
				t.Errorf("the engine sees %+v", in)
			}
		})
	}
}

// The engine knows how often a job saves its work: a loss costs that much.
func TestTheEngineKnowsCheckpoints(t *testing.T) {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cloudv1.CheckpointAnnotation: "30m"}}}
	if got := ForEngine(wl, nil).CheckpointInterval; got != 30*time.Minute {
		t.Errorf("it saves its work every %s", got)
	}
}
