package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const bestEffort = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"

// TestProvisioning takes workloads through the check for cluster-autoscaler, on
// its real CRD. The autoscaler itself does not run: the test writes the conditions
// that it would.
func TestProvisioning(t *testing.T) {
	ns := queueFor(t, "8")
	config := provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort})
	waitCheck(t, ns, metav1.ConditionFalse, "ProvisioningRequestNotServed", "install cluster-autoscaler's CRD provisioningrequests.autoscaling.x-k8s.io")
	waitActive(t, ns, kueue.ClusterQueueActiveReasonAdmissionCheckInactive)

	install := func() []*unstructured.Unstructured {
		objects, err := crds.ProvisioningRequests()
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range objects {
			cluster.Make(t, crd)
		}
		return objects
	}
	objects := install()
	waitCheck(t, ns, metav1.ConditionTrue, "Active", "The admission check is active")
	waitActive(t, ns, kueue.ClusterQueueActiveReasonReady)

	// A configuration that goes and comes again, and one that is named wrongly.
	if err := cluster.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	waitCheck(t, ns, metav1.ConditionFalse, "BadParametersRef", "not found")
	config.ResourceVersion = ""
	cluster.Make(t, config)
	waitCheck(t, ns, metav1.ConditionTrue, "Active", "")
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	patch(t, check, `{"spec":{"parameters":{"kind":"Wrong"}}}`)
	waitCheck(t, ns, metav1.ConditionFalse, "BadParametersRef", `wrong kind "Wrong", expecting "ProvisioningRequestConfig": bad parameters reference`)

	t.Run("life", lifeOfARequest)
	t.Run("retried and rejected", retriedAndRejected)
	t.Run("expired", expiredBooking)
	t.Run("revoked", revokedCapacity)
	t.Run("configuration", changedConfiguration)
	t.Run("not needed", requestNotNeeded)
	t.Run("refused", refusedTemplate)
	t.Run("topology", placedWhenNodesCome)
	t.Run("killed", requestsAfterAKill)

	// Without the CRD the check does not work any more; with it, it does again.
	for _, crd := range objects {
		if err := cluster.Delete(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		cluster.WaitGone(t, crd)
	}
	patch(t, check, `{"spec":{"parameters":{"kind":"ProvisioningRequestConfig"}}}`)
	waitCheck(t, ns, metav1.ConditionFalse, "ProvisioningRequestNotServed", "")
	install()
	waitCheck(t, ns, metav1.ConditionTrue, "Active", "")
	_, wl := asking(t, ns, "again", 1, "0s")
	says(t, request(t, wl, ns, 1), provisioning.Provisioned, true, "there you are")
	waitCondition(t, wl, kueue.WorkloadFinished, true)
}

// provisioned gives a queue a check for cluster-autoscaler with a configuration.
func provisioned(t *testing.T, queue string, spec kueue.ProvisioningRequestConfigSpec) *kueue.ProvisioningRequestConfig {
	t.Helper()
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: queue}, Spec: spec}
	cluster.Make(t, config, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: queue}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.ProvisioningRequestControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: queue},
	}})
	patch(t, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}, fmt.Sprintf(`{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":%q}]}}}`, queue))
	return config
}

func waitCheck(t *testing.T, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("check %s is %s %s", name, reason, status), func(ctx context.Context) error {
		check := &kueue.AdmissionCheck{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: name}, check); err != nil {
			return err
		}
		active := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
		if active == nil || active.Status != status || active.Reason != reason || !strings.Contains(active.Message, message) {
			return fmt.Errorf("it is %v", active)
		}
		return nil
	})
}

// request waits for an attempt of a workload.
func request(t *testing.T, wl *kueue.Workload, check string, attempt int) *provisioning.ProvisioningRequest {
	t.Helper()
	found := &provisioning.ProvisioningRequest{}
	key := client.ObjectKey{Namespace: wl.Namespace, Name: fmt.Sprintf("%s-%s-%d", wl.Name, check, attempt)}
	sandbox.Eventually(t, "request "+key.Name, func(ctx context.Context) error { return cluster.Get(ctx, key, found) })
	if !metav1.IsControlledBy(found, wl) {
		t.Errorf("request %s is owned by %v", found.Name, found.OwnerReferences)
	}
	return found
}

// says writes a condition of a request, as cluster-autoscaler does.
func says(t *testing.T, r *provisioning.ProvisioningRequest, condition string, value bool, message string) {
	t.Helper()
	status := metav1.ConditionFalse
	if value {
		status = metav1.ConditionTrue
	}
	sandbox.Eventually(t, condition+" of "+r.Name+" can be written", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
			return err
		}
		apimeta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: condition, Message: message})
		return cluster.Status().Update(ctx, r)
	})
}

// waitState waits for a state of the workload's check named like its namespace.
func waitState(t *testing.T, wl *kueue.Workload, state kueue.CheckState, message string) kueue.AdmissionCheckState {
	t.Helper()
	var found kueue.AdmissionCheckState
	sandbox.Eventually(t, fmt.Sprintf("check is %s: %s", state, message), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		for _, found = range wl.Status.AdmissionChecks {
			if string(found.Name) == wl.Namespace && found.State == state && found.Message == message {
				return nil
			}
		}
		return fmt.Errorf("checks are %+v", wl.Status.AdmissionChecks)
	})
	return found
}

// waitEvent waits for an event about the workload.
func waitEvent(t *testing.T, wl *kueue.Workload, reason, note string) {
	t.Helper()
	sandbox.Eventually(t, "event "+reason+": "+note, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := cluster.List(ctx, list, client.InNamespace(wl.Namespace)); err != nil {
			return err
		}
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.Name == wl.Name && e.Reason == reason && strings.Contains(e.Note, note) {
				return nil
			}
			notes = append(notes, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("there are %q", notes)
	})
}

// asking makes a job of pods with a card each that run for a time, and returns
// its workload.
func asking(t *testing.T, ns, name string, pods int32, runFor string) (*batchv1.Job, *kueue.Workload) {
	t.Helper()
	job := sandbox.Job(ns, name, "main", pods, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = runFor
	cluster.Make(t, job)
	return job, cluster.WorkloadOf(t, job)
}

// A request is made of what the pods will be, its progress is reported, and when the
// nodes are there the pods say that they use them.
func lifeOfARequest(t *testing.T) {
	ns := queueFor(t, "40") // the node has eight: quota is given without a look at nodes
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{
		ProvisioningClassName: bestEffort, Parameters: map[string]kueue.Parameter{"Priority": "TopTier"},
		PodSetUpdates: &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestPodSetUpdatesNodeSelector{
			{Key: corev1.LabelHostname, ValueFromProvisioningClassDetail: "Node"},
		}},
	})
	large, many := asking(t, ns, "large", 40, "0s")
	request(t, many, ns, 1)
	if err := cluster.Delete(t.Context(), large, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitUsage(t, ns, "0")

	job := sandbox.Job(ns, "job", "main", 2, "1")
	job.Annotations = map[string]string{"provreq.kueue.x-k8s.io/ValidUntilSeconds": "600"}
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	r := request(t, wl, ns, 1)
	if want := map[string]string{"Priority": "TopTier", "ValidUntilSeconds": "600"}; r.Spec.ProvisioningClassName != bestEffort || !maps.Equal(r.Spec.Parameters, want) {
		t.Errorf("the request is of class %s with %v, want %v", r.Spec.ProvisioningClassName, r.Spec.Parameters, want)
	}
	template := &corev1.PodTemplate{}
	if len(r.Spec.PodSets) != 1 || r.Spec.PodSets[0].Count != 2 {
		t.Fatalf("the pod sets are %+v", r.Spec.PodSets)
	}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: r.Spec.PodSets[0].PodTemplateRef.Name}, template); err != nil {
		t.Fatal(err)
	}
	spec := template.Template.Spec
	if cards := spec.Containers[0].Resources.Requests[sandbox.GPU]; cards.String() != "1" || spec.NodeSelector["elasticgpu.io/gpu-model"] != "H100-80G" {
		t.Errorf("the template is not what the pods will be: %v, %v", spec.Containers[0].Resources, spec.NodeSelector)
	}
	waitEvent(t, wl, "ProvisioningRequestCreated", fmt.Sprintf("Created ProvisioningRequest: %q", r.Name))

	says(t, r, provisioning.Accepted, true, "accepted")
	says(t, r, provisioning.Provisioned, false, "Not provisioned, ETA: 2024-02-22T10:36:40Z.")
	waitState(t, wl, kueue.CheckStatePending, "Not provisioned, ETA: 2024-02-22T10:36:40Z.")
	r.Status.ProvisioningClassDetails = map[string]string{"Node": "h100-80g-0"}
	if err := cluster.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	says(t, r, provisioning.Provisioned, true, "Provisioned")
	waitState(t, wl, kueue.CheckStateReady, "Provisioned")
	waitEvent(t, wl, "AdmissionCheckUpdated", fmt.Sprintf("Admission check %s updated state from Pending to Ready with message: Provisioned", ns))
	waitCondition(t, wl, kueue.WorkloadPodsReady, true)
	for _, pod := range podsOf(t, job) {
		if pod.Annotations[provisioning.ConsumeAnnotation] != r.Name || pod.Annotations[provisioning.ClassAnnotation] != bestEffort ||
			pod.Spec.NodeSelector[corev1.LabelHostname] != "h100-80g-0" {
			t.Errorf("pod %s does not use its request: %v, %v", pod.Name, pod.Annotations, pod.Spec.NodeSelector)
		}
	}

	// The booking may expire once the pods are there.
	says(t, r, provisioning.BookingExpired, true, "expired")
	for _, pod := range podsOf(t, job) {
		cluster.Change(t, &pod, func() { pod.Annotations[sandbox.RunFor] = "0s" })
	}
	waitCondition(t, wl, kueue.WorkloadFinished, true)
	cluster.WaitGone(t, r)
	cluster.WaitGone(t, template)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	if found := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); found != nil {
		t.Errorf("it was evicted: %s", found.Message)
	}
}

// A request that fails is made again after a pause in which the quota is others';
// one that fails too often rejects the workload.
func retriedAndRejected(t *testing.T) {
	ns := queueFor(t, "8")
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort, RetryStrategy: &kueue.ProvisioningRequestRetryStrategy{
		BackoffLimitCount: ptr.To(int32(1)), BackoffBaseSeconds: ptr.To(int32(1)), BackoffMaxSeconds: ptr.To(int32(1)),
	}})
	_, wl := asking(t, ns, "job", 2, "0s")
	first := request(t, wl, ns, 1)
	says(t, first, provisioning.Failed, true, "no machines")
	waitEvent(t, wl, "EvictedDueToAdmissionCheck", fmt.Sprintf("AdmissionCheck in Retry state: %q (Retrying after failure: no machines)", ns))
	cluster.WaitGone(t, first)
	second := request(t, wl, ns, 2)
	state := waitState(t, wl, kueue.CheckStatePending, "")
	if ptr.Deref(state.RetryCount, 0) != 1 {
		t.Errorf("the check was retried once, not %d times", ptr.Deref(state.RetryCount, 0))
	}
	says(t, second, provisioning.Failed, true, "still none")
	waitReason(t, wl, kueue.WorkloadEvicted, true, "DeactivatedDueToAdmissionCheck")
	waitEvent(t, wl, "AdmissionCheckRejected", fmt.Sprintf("Deactivated due to AdmissionCheck in Rejected state: %q (still none)", ns))
	waitUsage(t, ns, "0")
	cluster.WaitGone(t, second)

	// Reactivated it is tried again. Its check has not forgotten the retry, as in Kueue, so this is a second attempt.
	patch(t, wl, `{"spec":{"active":true}}`)
	says(t, request(t, wl, ns, 2), provisioning.Provisioned, true, "there you are")
	waitCondition(t, wl, kueue.WorkloadFinished, true)
}

// Nodes that were booked, and are gone before another check was ready, are asked
// for again.
func expiredBooking(t *testing.T) {
	ns := queueFor(t, "8")
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort, RetryStrategy: &kueue.ProvisioningRequestRetryStrategy{
		BackoffLimitCount: ptr.To(int32(3)), BackoffBaseSeconds: ptr.To(int32(1)), BackoffMaxSeconds: ptr.To(int32(1)),
	}})
	other := activeCheck(t, ns+"-other")
	patch(t, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, fmt.Sprintf(`{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":%q},{"name":%q}]}}}`, ns, other.Name))
	_, wl := asking(t, ns, "job", 1, "0s")
	first := request(t, wl, ns, 1)
	says(t, first, provisioning.Provisioned, true, "booked")
	waitState(t, wl, kueue.CheckStateReady, "booked")
	says(t, first, provisioning.BookingExpired, true, "too late")
	waitEvent(t, wl, "EvictedDueToAdmissionCheck", "Retrying after booking expired: too late")
	request(t, wl, ns, 2)
}

// A workload whose nodes were taken away is stopped for good: its pods would wait
// for ever.
func revokedCapacity(t *testing.T) {
	ns := queueFor(t, "8")
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort})
	job, wl := asking(t, ns, "job", 1, "forever")
	r := request(t, wl, ns, 1)
	says(t, r, provisioning.Provisioned, true, "booked")
	waitCondition(t, wl, kueue.WorkloadPodsReady, true)
	says(t, r, provisioning.CapacityRevoked, true, "the lease is over")
	waitReason(t, wl, kueue.WorkloadEvicted, true, "DeactivatedDueToAdmissionCheck")
	waitEvent(t, wl, "AdmissionCheckRejected", "(the lease is over)")
	waitJob(t, job, func(j *batchv1.Job) error {
		if !ptr.Deref(j.Spec.Suspend, false) || len(j.Spec.Template.Annotations[provisioning.ConsumeAnnotation]) > 0 {
			return fmt.Errorf("it runs, or its pods still name the request: %v", j.Spec.Template.Annotations)
		}
		return nil
	})
}

// A request that is not what the configuration asks for is replaced; without a
// configuration there is none. Those of running workloads stay.
func changedConfiguration(t *testing.T) {
	ns := queueFor(t, "8")
	config := provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort})
	_, running := asking(t, ns, "runs", 1, "forever")
	kept := request(t, running, ns, 1)
	says(t, kept, provisioning.Provisioned, true, "booked")
	waitCondition(t, running, kueue.WorkloadAdmitted, true)

	_, wl := asking(t, ns, "waits", 1, "0s")
	old := request(t, wl, ns, 1)
	patch(t, config, `{"spec":{"provisioningClassName":"other.example.com"}}`)
	sandbox.Eventually(t, "the request has the new class", func(ctx context.Context) error {
		now := &provisioning.ProvisioningRequest{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(old), now); err != nil {
			return err
		}
		if now.UID == old.UID || now.Spec.ProvisioningClassName != "other.example.com" {
			return fmt.Errorf("its class is %s", now.Spec.ProvisioningClassName)
		}
		return nil
	})
	patch(t, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"spec":{"parameters":{"name":"missing"}}}`)
	waitState(t, wl, kueue.CheckStatePending, "the check is not active")
	cluster.WaitGone(t, old)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Errorf("the request of a running workload: %v", err)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(running), running); err != nil || !apimeta.IsStatusConditionTrue(running.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Errorf("it does not run any more: %v %v", err, running.Status.Conditions)
	}
}

func requestNotNeeded(t *testing.T) {
	ns := queueFor(t, "8")
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort, ManagedResources: []corev1.ResourceName{"example.com/tpu"}})
	_, wl := asking(t, ns, "job", 1, "0s")
	waitCondition(t, wl, kueue.WorkloadFinished, true)
	waitState(t, wl, kueue.CheckStateReady, "the provisioning request is not needed")
	list := &provisioning.ProvisioningRequestList{}
	if err := cluster.List(t.Context(), list, client.InNamespace(ns)); err != nil || len(list.Items) > 0 {
		t.Errorf("there are %d requests, %v", len(list.Items), err)
	}
}

// Where the API server refuses a request's objects the workload says so, and
// tries again.
func refusedTemplate(t *testing.T) {
	ns := queueFor(t, "8")
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort})
	none := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/podtemplates": resource.MustParse("0")},
	}}
	cluster.Make(t, none)
	sandbox.Eventually(t, "the quota counts", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(none), none); err != nil {
			return err
		}
		if len(none.Status.Hard) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	_, wl := asking(t, ns, "job", 1, "0s")
	template := fmt.Sprintf("ppt-%s-%s-1-main", wl.Name, ns)
	waitEvent(t, wl, "FailedCreate", fmt.Sprintf("Error creating PodTemplate %q: podtemplates %q is forbidden: exceeded quota: none", template, template))
	sandbox.Eventually(t, "its check says so", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if checks := wl.Status.AdmissionChecks; len(checks) != 1 || !strings.Contains(checks[0].Message, "exceeded quota") {
			return fmt.Errorf("checks are %+v", checks)
		}
		return nil
	})
	if err := cluster.Delete(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	r := request(t, wl, ns, 1)
	waitState(t, wl, kueue.CheckStatePending, "")
	says(t, r, provisioning.Provisioned, true, "there you are")
	waitCondition(t, wl, kueue.WorkloadFinished, true)
}

// In a topology the places are found when the nodes are there, and until then the
// workload waits with its quota.
func placedWhenNodesCome(t *testing.T) {
	ns := cluster.Namespace(t)
	flavor := sandbox.Flavor(ns, map[string]string{"example.com/pool": ns})
	flavor.Spec.TopologyName = ptr.To(kueue.TopologyReference(ns))
	cluster.Make(t,
		&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}},
		flavor, sandbox.ClusterQueue(ns, ns, "8"), sandbox.LocalQueue(ns, "main", ns))
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort})
	job := sandbox.Job(ns, "job", "main", 2, "1")
	job.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = corev1.LabelHostname
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	says(t, request(t, wl, ns, 1), provisioning.Provisioned, true, "soon")
	waitState(t, wl, kueue.CheckStateReady, "soon")
	waitEvent(t, wl, "SecondPassFailed", "0 of 2 pods fit")
	assigned := wl.Status.Admission.PodSetAssignments[0]
	if ptr.Deref(assigned.DelayedTopologyRequest, "") != kueue.DelayedTopologyRequestStatePending || apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Errorf("without a node it is admitted: %+v", assigned)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{corev1.LabelHostname: ns, "example.com/pool": ns}}}
	cluster.Make(t, node)
	sandbox.Eventually(t, "the node is ready", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Spec.Taints = nil
		if err := cluster.Update(ctx, node); err != nil {
			return err
		}
		node.Status.Allocatable = corev1.ResourceList{sandbox.GPU: resource.MustParse("8"), "cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
		node.Status.Capacity = node.Status.Allocatable
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		return cluster.Status().Update(ctx, node)
	})
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	assigned = wl.Status.Admission.PodSetAssignments[0]
	if assigned.TopologyAssignment == nil || ptr.Deref(assigned.TopologyAssignment.Slices[0].ValuesPerLevel[0].Universal, "") != ns ||
		ptr.Deref(assigned.DelayedTopologyRequest, "") != kueue.DelayedTopologyRequestStateReady {
		t.Errorf("its place is %+v", assigned)
	}
}

// The next leader finds the requests that are there, and makes no others.
func requestsAfterAKill(t *testing.T) {
	ns := queueFor(t, "8")
	provisioned(t, ns, kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: bestEffort})
	_, runs := asking(t, ns, "runs", 1, "forever")
	used := request(t, runs, ns, 1)
	says(t, used, provisioning.Provisioned, true, "booked")
	waitCondition(t, runs, kueue.WorkloadPodsReady, true)
	_, waits := asking(t, ns, "waits", 1, "forever")
	asked := request(t, waits, ns, 1)
	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	says(t, asked, provisioning.Provisioned, true, "booked")
	waitCondition(t, waits, kueue.WorkloadPodsReady, true)
	list := &provisioning.ProvisioningRequestList{}
	if err := cluster.List(t.Context(), list, client.InNamespace(ns)); err != nil || len(list.Items) != 2 {
		t.Errorf("there are %d requests, %v", len(list.Items), err)
	}
	for _, r := range list.Items {
		if r.UID != used.UID && r.UID != asked.UID {
			t.Errorf("request %s is another one", r.Name)
		}
	}
}
