package visibility

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue"
)

// crowd waits in every queue but one that nobody knows.
type crowd int

func (c crowd) PendingInClusterQueue(_ context.Context, name string) ([]kueue.PendingWorkload, error) {
	if name == "nowhere" {
		return nil, queue.ErrUnknown
	}
	line := make([]kueue.PendingWorkload, c)
	for i := range line {
		line[i].Name, line[i].PositionInClusterQueue = fmt.Sprint("w", i), int32(i)
	}
	return line, nil
}

func (c crowd) PendingInLocalQueue(ctx context.Context, key client.ObjectKey) ([]kueue.PendingWorkload, error) {
	return c.PendingInClusterQueue(ctx, key.Name)
}

func TestPendingWorkloads(t *testing.T) {
	rows := PendingWorkloads(crowd(100_500))
	if len(rows) != 4 {
		t.Fatalf("%d rows, want two versions of two resources", len(rows))
	}
	for name, tc := range map[string]struct {
		query        map[string][]string
		count, first int
		bad          bool
	}{
		"as many as usual":      {count: 1000},
		"a few":                 {query: map[string][]string{"limit": {"3"}}, count: 3},
		"from the middle":       {query: map[string][]string{"limit": {"3"}, "offset": {"10"}}, count: 3, first: 10},
		"the last ones":         {query: map[string][]string{"offset": {"100499"}}, count: 1, first: 100_499},
		"beyond the end":        {query: map[string][]string{"offset": {"100501"}}, count: 0},
		"more than there may":   {query: map[string][]string{"limit": {"200000"}}, count: 100_000},
		"no limit is the usual": {query: map[string][]string{"limit": {"0"}}, count: 1000},
		"below zero":            {query: map[string][]string{"limit": {"-1"}, "offset": {"-1"}}, count: 0},
		"no number":             {query: map[string][]string{"limit": {"some"}}, bad: true},
	} {
		for _, row := range rows {
			answer, err := row.Handle(t.Context(), &Request{Name: "q", Query: tc.query})
			if tc.bad {
				if !apierrors.IsBadRequest(err) {
					t.Errorf("%s: error %v", name, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			items := answer.(*kueue.PendingWorkloadsSummary).Items
			if len(items) != tc.count || tc.count > 0 && int(items[0].PositionInClusterQueue) != tc.first {
				t.Errorf("%s: %d items", name, len(items))
			}
		}
	}
	for _, row := range rows {
		if _, err := row.Handle(t.Context(), &Request{Name: "nowhere"}); !apierrors.IsNotFound(err) {
			t.Errorf("a queue that is not there: %v", err)
		}
	}
	nobody, err := PendingWorkloads(crowd(0))[1].Handle(t.Context(), &Request{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(nobody)
	if want := `{"kind":"PendingWorkloadsSummary","apiVersion":"visibility.kueue.x-k8s.io/v1beta2","metadata":{},"items":[]}`; err != nil || string(data) != want {
		t.Errorf("got %s, %v; want %s", data, err, want)
	}
}
