package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// shares that move, or refuse to.
type shares struct {
	out     map[string]bool
	refused error
}

func (s *shares) Out(_ context.Context, id string) (int64, error) {
	if s.refused != nil {
		return 0, s.refused
	}
	s.out[id] = true
	return 512 << 20, nil
}
func (s *shares) In(_ context.Context, id string) (int64, error) {
	delete(s.out, id)
	return 512 << 20, nil
}

func TestPodIsMovedWhenItIsSaid(t *testing.T) {
	grant := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: grant.Pod.Namespace, Name: grant.Pod.Name, UID: grant.UID}}
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	moves := &shares{out: map[string]bool{}}
	swapper := &agent.Swapper{Client: c, Shares: moves, Grants: func() ([]slots.Grant, error) { return []slots.Grant{grant}, nil }}
	// say sets the annotation and returns what the pod's condition says then.
	say := func(word string) corev1.PodCondition {
		t.Helper()
		now := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		now.Annotations = map[string]string{egpu.SwapAnnotation: word}
		if err := c.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if _, err := swapper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		if len(now.Status.Conditions) != 1 || now.Status.Conditions[0].Type != egpu.SwappedOut {
			t.Fatalf("conditions %v", now.Status.Conditions)
		}
		return now.Status.Conditions[0]
	}
	if got := say("out"); got.Status != corev1.ConditionTrue || !moves.out["3"] || !strings.Contains(got.Message, "512 MiB") {
		t.Fatalf("out: %+v", got)
	}
	if got := say("in"); got.Status != corev1.ConditionFalse || moves.out["3"] || got.Reason != "MovedIn" {
		t.Fatalf("in: %+v", got)
	}
	moves.refused = errors.New("it has a memory pool")
	if got := say("out"); got.Status != corev1.ConditionFalse || got.Reason != "CannotMoveOut" || !strings.Contains(got.Message, "memory pool") {
		t.Fatalf("refused: %+v", got)
	}
	if got := say("sideways"); got.Reason != "CannotMoveOut" || !strings.Contains(got.Message, "write out or in") {
		t.Fatalf("nonsense: %+v", got)
	}
	grant.Backend = "mig"
	if got := say("out"); got.Reason != "CannotMoveOut" || !strings.Contains(got.Message, "by mig") {
		t.Fatalf("another backend: %+v", got)
	}
}
