package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// TestProvisionedPodSets: the pods of a job with several pod sets are requested by one
// template, and all of them name the request they use. With the gate
// CleanupProvisioningRequestsOnEviction off, as here, an evicted workload retains its
// request, and with it its nodes.
func TestProvisionedPodSets(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	requests, err := crds.ProvisioningRequests()
	if err != nil {
		t.Fatal(err)
	}
	if err := install(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	a := newArena(t)
	cluster.Make(t,
		&kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}, Spec: kueue.ProvisioningRequestConfigSpec{
			ProvisioningClassName: "check-capacity.autoscaling.x-k8s.io", PodSetMergePolicy: ptr.To(kueue.IdenticalWorkloadSchedulingRequirements),
		}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.ProvisioningRequestControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: a.namespace},
		}})
	a.require(t, a.namespace)
	a.open(t)
	job := samples(t, "pytorchjob")[0]
	job.SetNamespace(a.namespace)
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)

	request := &provisioning.ProvisioningRequest{}
	request.Namespace, request.Name = a.namespace, wl.Name+"-"+a.namespace+"-1"
	sandbox.Eventually(t, "its nodes are there", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(request), request); err != nil {
			return err
		}
		apimeta.SetStatusCondition(&request.Status.Conditions, metav1.Condition{Type: provisioning.Provisioned, Status: metav1.ConditionTrue, Reason: "Provisioned"})
		return cluster.Status().Update(ctx, request)
	})
	if len(request.Spec.PodSets) != 1 || request.Spec.PodSets[0].Count != 4 {
		t.Errorf("a master and three workers are asked for as %+v", request.Spec.PodSets)
	}
	started := func(what string) {
		sandbox.Eventually(t, what, func(ctx context.Context) error {
			now, err := fetch(ctx, job)
			if err != nil {
				return err
			}
			text, err := json.Marshal(now.Object["spec"])
			if err != nil {
				return err
			}
			if uses := strings.Count(string(text), fmt.Sprintf("%q:%q", provisioning.ConsumeAnnotation, request.Name)); uses != 2 {
				return fmt.Errorf("%d of 2 pod sets use the request: %s", uses, text)
			}
			return nil
		})
	}
	started("master and workers use the request")

	active := func(value bool) {
		if err := cluster.Patch(t.Context(), wl, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%t}}`, value))); err != nil {
			t.Fatal(err)
		}
	}
	active(false)
	waitCondition(t, wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	active(true)
	waitCondition(t, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue) // although nothing is provisioned again
	started("it is started on the nodes it had")
	now := &provisioning.ProvisioningRequest{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(request), now); err != nil || now.UID != request.UID {
		t.Errorf("the request is another one: %v", err)
	}
}
