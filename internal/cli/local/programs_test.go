package local

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// A leader's lease lasts as in production, which a busy machine does not lose, unless it is asked for otherwise.
func TestElect(t *testing.T) {
	production := v1alpha1.NewQueueConfiguration().LeaderElection
	for _, test := range []struct {
		lease, duration, deadline, retry time.Duration
	}{
		{0, production.LeaseDuration.Duration, production.RenewDeadline.Duration, production.RetryPeriod.Duration},
		{8 * time.Second, 8 * time.Second, 6 * time.Second, time.Second},
	} {
		election := production
		elect(&election, test.lease)
		if election.LeaseDuration.Duration != test.duration || election.RenewDeadline.Duration != test.deadline || election.RetryPeriod.Duration != test.retry {
			t.Errorf("a lease of %s lasts %s, is renewed within %s, tried for every %s", test.lease,
				election.LeaseDuration.Duration, election.RenewDeadline.Duration, election.RetryPeriod.Duration)
		}
	}
}

// The lease that is deleted at the start is the one that the program takes.
func TestLeaseOf(t *testing.T) {
	list, err := programs(t.TempDir(), UpOptions{Queue: func(cfg *v1alpha1.QueueConfiguration) { cfg.LeaderElection.Name = "ours" }})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"elastic-queue/ours", "elastic-queue/elastic-gpu-scheduler.elasticai.io", "/"} {
		p := &list[i]
		p.config(p)
		if got := p.lease.String(); got != want {
			t.Errorf("the lease of %s is %s, not %s", p.name, got, want)
		}
	}
}

// What was not built is named, with the way to get it: a target of the Makefile in a checkout, and else what a user without one has.
func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := program{name: "elastic-gpu-scheduler", binary: "elastic-scheduler"}
	if _, err := p.path(); err == nil || !strings.Contains(err.Error(), "elastic-scheduler is neither") || !strings.Contains(err.Error(), "make build-scheduler") {
		t.Errorf("a program that is not there: %v", err)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ checkout, otherwise string }{
		"elastic-queue":       {"build-programs", "go install github.com/elastic-ai/elastic/cmd/elastic-queue@"},
		"elastic-gpu-agent":   {"build-programs", "go install github.com/elastic-ai/elastic/cmd/elastic-gpu-agent@"},
		"elastic-sandbox":     {"build-sandbox", "go install github.com/elastic-ai/elastic/sandbox/cmd/elastic-sandbox@"},
		"elastic-scheduler":   {"build-scheduler", "the archive of a release"},
		"elastic-gpu-arbiter": {"build-native", "the archive of a release"},
	} {
		if got, want := toGet(name, "../../../bin"), "run 'make "+test.checkout+"'"; got != want {
			t.Errorf("in a checkout %s is to be had so: %s, want %s", name, got, want)
		}
		if !strings.Contains(string(makefile), "\n"+test.checkout+":") {
			t.Errorf("the Makefile has no %s", test.checkout)
		}
		if got := toGet(name, t.TempDir()); !strings.Contains(got, test.otherwise) || strings.Contains(got, "run 'make") {
			t.Errorf("without a checkout %s is to be had so: %s, want %s", name, got, test.otherwise)
		}
	}
}

// What "elastic up" starts is what "make up" builds and a release has for each platform, so nothing of it is missing there.
func TestProgramsAreReleased(t *testing.T) {
	list, err := programs(t.TempDir(), UpOptions{})
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(makefile), "\nLATER :=")
	later, _, _ := strings.Cut(rest, "\n")
	if !found || !strings.Contains(string(makefile), "\nSTARTED := $(filter-out $(LATER),$(PROGRAMS)) elastic-sandbox\n") {
		t.Fatal("the Makefile names what is started in another way: compare with that")
	}
	for i := range list {
		name := cmp.Or(list[i].binary, list[i].name)
		if _, err := os.Stat("../../../cmd/" + name); err != nil || slices.Contains(strings.Fields(later), name) {
			t.Errorf("\"elastic up\" starts %s, which \"make up\" does not build: %v, later %s", name, err, later)
		}
	}
}
