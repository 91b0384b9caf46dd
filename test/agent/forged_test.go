package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// forger gets past admission, by the GPU scheduler's name: the agent does not rely on it.
func forger(t *testing.T) client.Client {
	t.Helper()
	config := rest.CopyConfig(cluster.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:elastic-queue:elastic-gpu-scheduler", Groups: []string{"system:masters"}}
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const cardsOfMain = egpu.ContainerPrefix + "main"

// A container that starts again has the card that it had, whatever was written into its pod meanwhile.
func TestChangedAnnotationGivesNoOtherCard(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "again", nil, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	cluster.Make(t, p)
	first := probed(t, p)
	first.holds(t, 30, 1000)
	for _, forged := range []string{map[string]string{"0": "1", "1": "0"}[p.Annotations[cardsOfMain]], "0,1"} {
		changed := p.DeepCopy()
		changed.Annotations[cardsOfMain] = forged
		if err := forger(t).Patch(t.Context(), changed, client.MergeFrom(p)); err != nil {
			t.Fatal(err)
		}
		before := p.Status.ContainerStatuses[0].RestartCount
		sandbox.Eventually(t, "the container starts again", func(ctx context.Context) error {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount <= before || s[0].State.Waiting != nil {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		now := probed(t, p)
		now.holds(t, 30, 1000)
		if now.Stats.Devices[0].UUID != first.Stats.Devices[0].UUID {
			t.Fatalf("with annotation %s it has card %s, and had %s", forged, now.Stats.Devices[0].UUID, first.Stats.Devices[0].UUID)
		}
	}
}

// A pod made with its node and its cards gets none of them, and says why. (What names just what it asks for, on cards
// that have it free, is taken for an earlier leader's bind during the first seconds of a new one: that is not tried.)
func TestPodThatNobodyBoundGetsNoCard(t *testing.T) {
	for _, cards := range []string{"", "0,1", "7"} {
		t.Run("cards "+cards, func(t *testing.T) { nobodyBound(t, cards) })
	}
}

func nobodyBound(t *testing.T, cards string) {
	ns := cluster.Namespace(t)
	p := pod(ns, "forged", nil, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	p.Spec.NodeName = local.NodeName
	if cards != "" {
		p.Annotations = map[string]string{egpu.Assumed: "true", cardsOfMain: cards}
	}
	if err := forger(t).Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), p, client.GracePeriodSeconds(0)) })
	sandbox.Eventually(t, "the kubelet says why it does not start", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := cluster.List(ctx, events, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, "another scheduler put it on this node") {
				return nil
			}
		}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		return fmt.Errorf("%d events, %+v", len(events.Items), p.Status)
	})
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if s := p.Status.ContainerStatuses; p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodFailed || len(s) > 0 && s[0].State.Running != nil {
		t.Fatalf("it runs: %+v", p.Status)
	}
}
