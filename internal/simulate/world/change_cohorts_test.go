package world

import (
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Cohorts that queues and other cohorts only name can be set as those that have an object; how a tree shares is set at its root.
func TestSetCohortsThatAreOnlyNamed(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}})
	c.Cohorts = []admission.Cohort{{Name: "left", Parent: "top"}}
	c.Queues[0].Cohort, c.Queues[1].Cohort = "left", "right"
	policies := func(changes string) string {
		var out []string
		for _, co := range set(t, c, changes).Cohorts {
			if co.Policy == admission.PolicyDRF {
				out = append(out, co.Name)
			}
			if nominalOf(co.Groups, c.Cards) > 0 {
				out = append(out, "quota of "+co.Name)
			}
		}
		return strings.Join(out, ", ")
	}
	for changes, want := range map[string]string{
		"cohort/top.fairSharing=drf":   "top",
		"cohort/right.fairSharing=drf": "right",
		"cohort/*.fairSharing=drf":     "right, top",
		"cohort/right.quota=4":         "quota of right",
		"cohort/*.quota=4":             "quota of left, quota of right, quota of top",
	} {
		if got := policies(changes); got != want {
			t.Errorf("%s: %s, want %s", changes, got, want)
		}
	}
	if len(c.Cohorts) != 1 {
		t.Error("the cluster itself changed")
	}
	for changes, want := range map[string]string{
		"cohort/left.fairSharing=drf": "cohort left is below top: how a tree shares is set at its root, cohort top",
		"cohort/none.quota=4":         "there is no cohort none",
	} {
		if _, err := c.Set(changes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", changes, err, want)
		}
	}
	// What is set counts: with quota of the cohort's own, b's job starts on cards that nobody else has quota for.
	tr := trace(t, "x,,b,0,100,12,,,\n")
	w, _ := simulate(t, tr, set(t, c, "queue/a.quota=4,cohort/right.quota=4"), Settings{})
	if got, want := starts(w), "x 0-100"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A cohort is put below no cohort that is below it, and below none of those that manifests have in a circle.
func TestNoCohortIsAboveItself(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}})
	c.Cohorts = []admission.Cohort{{Name: "top"}, {Name: "left", Parent: "top"}, {Name: "one", Parent: "other"}, {Name: "other", Parent: "one"}}
	for changes, want := range map[string]string{
		"cohort/top.parent=left": "cohort top is left, or above it",
		"cohort/top.parent=one":  "the cohorts above one are in a circle",
	} {
		if _, err := c.Set(changes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", changes, err, want)
		}
	}
}
