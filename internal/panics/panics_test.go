package panics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/elastic-ai/elastic/internal/panics"
)

func TestContain(t *testing.T) {
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	refused := errors.New("refused")
	if err := panics.Contain(log, "test", "team/a", func() error { return refused }); !errors.Is(err, refused) || panics.Is(err) {
		t.Errorf("an error is %v", err)
	}
	before := testutil.ToFloat64(panics.Total.WithLabelValues("test"))
	var nothing []int
	err := fmt.Errorf("pod a: %w", panics.Contain(log, "test", "team/a", func() error { nothing[3]++; return nil }))
	if !panics.Is(err) || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("a panic is %v", err)
	}
	if n := testutil.ToFloat64(panics.Total.WithLabelValues("test")) - before; n != 1 {
		t.Errorf("%g are counted", n)
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "team/a") || !strings.Contains(logged[0], "panics_test.go") {
		t.Errorf("logged: %v", logged)
	}
}
