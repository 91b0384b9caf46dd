package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// Whether a pod could be swapped is said before it is preempted, and written when it changes.
func TestPodsSayWhetherTheyCouldBeSwapped(t *testing.T) {
	grant := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: grant.Pod.Namespace, Name: grant.Pod.Name, UID: grant.UID}}
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	var processes []gpushare.Process
	var silent error
	r := &agent.SwapReporter{
		Client: c, Log: logr.Discard(),
		Grants:    func() ([]slots.Grant, error) { return []slots.Grant{grant}, nil },
		Processes: func(context.Context, *share.Share) ([]gpushare.Process, error) { return processes, silent },
	}
	now := &corev1.Pod{}
	says := func(what string, conditions int, status corev1.ConditionStatus, message string) {
		t.Helper()
		if err := r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		if len(now.Status.Conditions) != conditions || conditions == 1 && (now.Status.Conditions[0].Type != egpu.Swappable || now.Status.Conditions[0].Status != status || now.Status.Conditions[0].Message != message) {
			t.Fatalf("%s: conditions %+v", what, now.Status.Conditions)
		}
	}
	annotate := func(annotations map[string]string) {
		t.Helper()
		now.Annotations = annotations
		if err := c.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	processes = []gpushare.Process{{PID: 7, Immovable: "arrays"}}
	says("one that is not to be swapped", 0, "", "")
	annotate(map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap})
	processes = nil
	says("nothing on a card yet", 0, "", "")
	processes = []gpushare.Process{{PID: 6}, {PID: 7, Immovable: "arrays"}}
	says("one of two cannot move", 1, corev1.ConditionFalse, "container main: process 7: arrays")
	version := now.ResourceVersion
	says("the same again", 1, corev1.ConditionFalse, "container main: process 7: arrays")
	if now.ResourceVersion != version {
		t.Error("what is known was written again")
	}
	processes = []gpushare.Process{{PID: 6}, {PID: 7, Silent: true}}
	says("one does not answer", 1, corev1.ConditionFalse, "container main: process 7: arrays")
	processes, silent = nil, errors.New("no answer")
	says("nothing is known", 1, corev1.ConditionFalse, "container main: process 7: arrays")
	processes, silent = []gpushare.Process{{PID: 6}, {PID: 7}}, nil
	annotate(map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap, egpu.SwapAnnotation: egpu.SwapOut})
	says("it is being moved", 1, corev1.ConditionFalse, "container main: process 7: arrays")
	annotate(map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap})
	says("all can move", 1, corev1.ConditionTrue, "")
	grant.Backend = "mig"
	says("another backend", 1, corev1.ConditionFalse, "container main has its cards by mig: only shares by the library move")
}
