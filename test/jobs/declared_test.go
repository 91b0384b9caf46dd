package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// TestDeclaredKind: a company's own kind, described in YAML alone, goes through the
// same life; it is not queued before its CRD is installed, nor when it is no longer
// declared.
func TestDeclaredKind(t *testing.T) {
	described := samples(t, "declared/jobkind")
	kind := &jobsv1alpha1.JobKind{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(described[0].Object, kind); err != nil {
		t.Fatal(err)
	}
	cluster.Make(t, kind)
	waitKind(t, kind, jobsv1alpha1.ReasonNotInstalled, "does not serve trains")
	if err := install(t.Context(), samples(t, "declared/crd")); err != nil {
		t.Fatal(err)
	}
	waitKind(t, kind, jobsv1alpha1.ReasonForbidden, "elasticai.io/aggregate-to-queue")
	cluster.Make(t, described[1])
	waitKind(t, kind, jobsv1alpha1.ReasonReady, "")

	// A mistake in it is reported with its path, and does not affect other kinds.
	broken := kind.DeepCopy()
	broken.Spec.Suspend, broken.Spec.Ready = "spec.pausd", "object.status.rding > 0"
	before := kind.DeepCopy()
	if err := cluster.Patch(t.Context(), broken, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	message := waitKind(t, kind, jobsv1alpha1.ReasonInvalid, "suspend: trains.examplecorp.com/v1 has no field spec.pausd; did you mean \"paused\"?")
	if want := "ready: trains.examplecorp.com/v1 has no field status.rding; did you mean \"riding\"?"; !strings.Contains(message, want) {
		t.Fatalf("the message is %q, want it to contain %q", message, want)
	}
	mended := broken.DeepCopy()
	mended.Spec = before.Spec
	if err := cluster.Patch(t.Context(), mended, client.MergeFrom(broken)); err != nil {
		t.Fatal(err)
	}
	waitKind(t, kind, jobsv1alpha1.ReasonReady, "")
	sandbox.Eventually(t, "the API server sends trains to the webhook", func(ctx context.Context) error {
		probe := samples(t, "declared/train")[0]
		probe.SetNamespace("default")
		if err := cluster.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if paused, _, _ := unstructured.NestedBool(probe.Object, "spec", "paused"); !paused {
			return fmt.Errorf("a new train is not paused")
		}
		return nil
	})

	life{
		sample: "declared/train", suspend: "spec.paused", podSets: "driver:1 stokers:3",
		running: `{riding: 4}`, stopped: `{riding: 0}`, done: `{riding: 0, state: Arrived, reason: on time}`,
	}.live(t)
	elasticTrain.live(t)

	if err := cluster.Delete(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "trains are left alone", func(ctx context.Context) error {
		probe := samples(t, "declared/train")[0]
		probe.SetNamespace("default")
		if err := cluster.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if paused, _, _ := unstructured.NestedBool(probe.Object, "spec", "paused"); paused {
			return fmt.Errorf("a new train is paused")
		}
		return nil
	})
}

// waitKind waits until a JobKind reports why it is or is not in use.
func waitKind(t *testing.T, kind *jobsv1alpha1.JobKind, reason, message string) string {
	t.Helper()
	var found *metav1.Condition
	sandbox.Eventually(t, "the JobKind is "+reason, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(kind), kind); err != nil {
			return err
		}
		found = apimeta.FindStatusCondition(kind.Status.Conditions, jobsv1alpha1.Active)
		if found == nil || found.Reason != reason || !strings.Contains(found.Message, message) {
			return fmt.Errorf("its condition is %v", found)
		}
		return nil
	})
	return found.Message
}

// TestMPIJobV1: a cluster has the MPI operator's MPIJob or the training
// operator's. When one CRD replaces the other, so does its row.
func TestMPIJobV1(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	objects, err := crds.MPIJobV1()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Delete(t.Context(), objects[0]); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the MPI operator's CRD is gone", func(ctx context.Context) error {
		_, err := fetch(ctx, objects[0])
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is there")
	})
	if err := install(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	kubeflow("mpijob-v1", "launcher:1 worker:2", "Launcher").live(t)
}
