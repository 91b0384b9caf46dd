package provisioning

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("w", 250)
	for _, workload := range []string{"job-a-12345", long} {
		for attempt := int32(1); attempt < 12; attempt++ {
			name := requestName(workload, "check", attempt)
			if len(name) > 253 || len(templateName(name, "workers")) > 253 {
				t.Errorf("%s is too long for a name", name)
			}
			if got := attemptOf(name, workload, "check"); got != attempt {
				t.Errorf("%s is said to be attempt %d", name, got)
			}
		}
	}
	if name := requestName("job-a-12345", "check", 2); name != "job-a-12345-check-2" || templateName(name, "main") != "ppt-job-a-12345-check-2-main" {
		t.Errorf("the names are not Kueue's: %s, %s", name, templateName(name, "main"))
	}
	for _, other := range []string{"job-a-12345-check-1-1", "job-a-12345-check-", "job-a-12345-check-0", "job-a-12345-chec-1", "job-b-check-1"} {
		if got := attemptOf(other, "job-a-12345", "check"); got != 0 {
			t.Errorf("%s is another check's or workload's, not attempt %d", other, got)
		}
	}
}

func flavors(name kueue.ResourceFlavorReference) (*kueue.ResourceFlavor, error) {
	flavor := &kueue.ResourceFlavor{}
	switch name {
	case "spot":
		flavor.Spec.NodeLabels = map[string]string{"kind": "spot"}
		flavor.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	case "reserved":
		flavor.Spec.NodeLabels = map[string]string{"kind": "reserved"}
	default:
		return nil, fmt.Errorf("there is no flavor %s", name)
	}
	return flavor, nil
}

// trainer is a workload of a launcher and two sets of workers with a card per
// pod; its admission has counts and flavors by pod set.
func trainer(counts [3]int32, given [3]kueue.ResourceFlavorReference) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl", UID: "uid"}}
	wl.Status.Admission = &kueue.Admission{}
	for i, name := range []kueue.PodSetReference{"launcher", "head", "workers"} {
		set := kueue.PodSet{Name: name, Count: 4}
		c := corev1.Container{Name: "c", Image: string(name), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
		if name != "launcher" {
			c.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		}
		set.Template.Spec.Containers = []corev1.Container{c}
		wl.Spec.PodSets = append(wl.Spec.PodSets, set)
		wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: name, Count: ptr.To(counts[i]), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": given[i], "nvidia.com/gpu": given[i]},
		})
	}
	return wl
}

func describe(groups []group) string {
	var out []string
	for _, g := range groups {
		out = append(out, fmt.Sprintf("%d of %v on %s", g.count, g.sets, g.template.Spec.NodeSelector["kind"]))
	}
	return strings.Join(out, ", ")
}

func TestWanted(t *testing.T) {
	gpus := []corev1.ResourceName{"nvidia.com/gpu"}
	identical, similar := ptr.To(kueue.IdenticalPodTemplates), ptr.To(kueue.IdenticalWorkloadSchedulingRequirements)
	spot := [3]kueue.ResourceFlavorReference{"spot", "spot", "spot"}
	for name, test := range map[string]struct {
		counts  [3]int32
		given   [3]kueue.ResourceFlavorReference
		config  kueue.ProvisioningRequestConfigSpec
		edit    func(*kueue.Workload)
		want    string
		problem string
	}{
		"all resources are managed":               {counts: [3]int32{1, 1, 4}, given: spot, want: "1 of [launcher] on spot, 1 of [head] on spot, 4 of [workers] on spot"},
		"only those that ask for cards":           {counts: [3]int32{1, 1, 4}, given: spot, config: kueue.ProvisioningRequestConfigSpec{ManagedResources: gpus}, want: "1 of [head] on spot, 4 of [workers] on spot"},
		"counts are those of the admission":       {counts: [3]int32{0, 1, 2}, given: spot, want: "1 of [head] on spot, 2 of [workers] on spot"},
		"no pod asks for what is managed":         {counts: [3]int32{1, 1, 4}, given: spot, config: kueue.ProvisioningRequestConfigSpec{ManagedResources: []corev1.ResourceName{"tpu"}}},
		"equal requests are merged":               {counts: [3]int32{1, 1, 4}, given: spot, config: kueue.ProvisioningRequestConfigSpec{PodSetMergePolicy: similar}, want: "1 of [launcher] on spot, 5 of [head workers] on spot"},
		"not on nodes of another flavor":          {counts: [3]int32{1, 1, 4}, given: [3]kueue.ResourceFlavorReference{"spot", "reserved", "spot"}, config: kueue.ProvisioningRequestConfigSpec{PodSetMergePolicy: similar}, want: "1 of [launcher] on spot, 1 of [head] on reserved, 4 of [workers] on spot"},
		"images differ, so templates do":          {counts: [3]int32{1, 1, 4}, given: spot, config: kueue.ProvisioningRequestConfigSpec{PodSetMergePolicy: identical}, want: "1 of [launcher] on spot, 1 of [head] on spot, 4 of [workers] on spot"},
		"identical templates":                     {counts: [3]int32{1, 1, 4}, given: spot, config: kueue.ProvisioningRequestConfigSpec{PodSetMergePolicy: identical}, edit: func(wl *kueue.Workload) { wl.Spec.PodSets[1].Template = *wl.Spec.PodSets[2].Template.DeepCopy() }, want: "1 of [launcher] on spot, 5 of [head workers] on spot"},
		"an admission that lacks a pod set":       {counts: [3]int32{1, 1, 4}, given: spot, edit: func(wl *kueue.Workload) { wl.Status.Admission.PodSetAssignments[2].Name = "other" }, problem: `nothing of pod set "workers"`},
		"a flavor that is gone is not guessed at": {counts: [3]int32{1, 1, 4}, given: [3]kueue.ResourceFlavorReference{"spot", "gone", "spot"}, problem: "flavor gone of the admission"},
	} {
		t.Run(name, func(t *testing.T) {
			wl := trainer(test.counts, test.given)
			if test.edit != nil {
				test.edit(wl)
			}
			groups, err := podsToProvision(wl, &test.config, flavors)
			if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Fatalf("error %v, want %q", err, test.problem)
			}
			if got := describe(groups); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// The template is what the pods will be; the workload stays as it is.
func TestBuild(t *testing.T) {
	wl := trainer([3]int32{1, 1, 4}, [3]kueue.ResourceFlavorReference{"spot", "spot", "spot"})
	wl.Spec.PodSets[2].Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	wl.Annotations = map[string]string{"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60", "provreq.kueue.x-k8s.io/class": "own", "other": "x"}
	before := wl.DeepCopy()
	config := &kueue.ProvisioningRequestConfigSpec{
		ProvisioningClassName: "check-capacity.autoscaling.x-k8s.io", Parameters: map[string]kueue.Parameter{"class": "usual", "more": "1"},
		ManagedResources: []corev1.ResourceName{"nvidia.com/gpu"},
	}
	groups, err := podsToProvision(wl, config, flavors)
	if err != nil {
		t.Fatal(err)
	}
	request, templates := build(wl, "wl-check-1", config, groups)
	if want := map[string]string{"ValidUntilSeconds": "60", "class": "own", "more": "1"}; !maps.Equal(request.Spec.Parameters, want) {
		t.Errorf("parameters are %v, want %v", request.Spec.Parameters, want)
	}
	if !matchesConfig(request, wl, config) {
		t.Error("what a job chose for itself does not make its request outdated")
	}
	config.Parameters["more"] = "2"
	if matchesConfig(request, wl, config) {
		t.Error("a parameter has changed")
	}
	for _, obj := range []metav1.Object{request, templates[0], templates[1]} {
		if !metav1.IsControlledBy(obj, wl) || obj.GetNamespace() != "ns" || obj.GetLabels()["kueue.x-k8s.io/managed"] != "true" {
			t.Errorf("%s is not marked as the workload's: %v %v", obj.GetName(), obj.GetOwnerReferences(), obj.GetLabels())
		}
	}
	if len(request.Spec.PodSets) != 2 || request.Spec.PodSets[1] != (PodSet{PodTemplateRef: TemplateRef{Name: "ppt-wl-check-1-workers"}, Count: 4}) || templates[1].Name != "ppt-wl-check-1-workers" {
		t.Errorf("the pod sets are %+v", request.Spec.PodSets)
	}
	spec := templates[1].Template.Spec
	if !maps.Equal(spec.NodeSelector, map[string]string{"zone": "a", "kind": "spot"}) || len(spec.Tolerations) != 1 {
		t.Errorf("the flavor's labels and tolerations are missing: %v %v", spec.NodeSelector, spec.Tolerations)
	}
	if cards := spec.Containers[0].Resources.Requests["nvidia.com/gpu"]; cards.String() != "1" {
		t.Errorf("a limit is a request too: %v", spec.Containers[0].Resources.Requests)
	}
	if !equality.Semantic.DeepEqual(before, wl) {
		t.Error("the workload was changed")
	}
}

func TestVerdict(t *testing.T) {
	config := &kueue.ProvisioningRequestConfigSpec{
		RetryStrategy: &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: ptr.To(int32(2)), BackoffBaseSeconds: ptr.To(int32(60)), BackoffMaxSeconds: ptr.To(int32(100))},
		PodSetUpdates: &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestPodSetUpdatesNodeSelector{
			{Key: "pool", ValueFromProvisioningClassDetail: "Pool"}, {Key: "zone", ValueFromProvisioningClassDetail: "Unsaid"},
		}},
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	type said map[string]metav1.ConditionStatus
	pending, retry, ready, rejected := kueue.CheckStatePending, kueue.CheckStateRetry, kueue.CheckStateReady, kueue.CheckStateRejected
	for name, test := range map[string]struct {
		attempt  int32
		is       kueue.CheckState
		retried  int32
		admitted bool
		inactive bool
		said     said
		want     kueue.CheckState
		message  string
		after    int32
	}{
		"nothing said yet":                 {is: pending, want: pending, message: ""},
		"accepted":                         {is: pending, said: said{Accepted: yes}, want: pending, message: "before"},
		"accepted with an estimate":        {is: pending, said: said{Accepted: yes, Provisioned: no}, want: pending, message: "Provisioned says"},
		"provisioned":                      {is: pending, said: said{Accepted: yes, Provisioned: yes}, want: ready, message: "Provisioned says"},
		"ready already":                    {is: ready, said: said{Accepted: yes, Provisioned: yes}, want: ready, message: "before"},
		"failed once":                      {is: pending, said: said{Failed: yes}, want: retry, message: "Retrying after failure: Failed says", after: 60},
		"failed again":                     {is: pending, attempt: 2, retried: 1, said: said{Accepted: yes, Failed: yes}, want: retry, message: "Retrying after failure: Failed says", after: 100},
		"failed once too often":            {is: pending, attempt: 3, retried: 2, said: said{Failed: yes}, want: rejected, message: "Failed says"},
		"an old failure":                   {is: pending, attempt: 1, retried: 1, said: said{Failed: yes}, want: pending, message: "Retrying after failure: Failed says"},
		"not failed":                       {is: pending, said: said{Failed: no}, want: pending},
		"expired before the start":         {is: ready, said: said{Provisioned: yes, BookingExpired: yes}, want: retry, message: "Retrying after booking expired: BookingExpired says", after: 60},
		"expired for the last time":        {is: ready, attempt: 3, retried: 2, said: said{Provisioned: yes, BookingExpired: yes}, want: rejected, message: "BookingExpired says"},
		"expired after the start":          {is: ready, admitted: true, said: said{Provisioned: yes, BookingExpired: yes}, want: ready, message: "before"},
		"revoked":                          {is: ready, admitted: true, said: said{Provisioned: yes, BookingExpired: yes, CapacityRevoked: yes}, want: rejected, message: "CapacityRevoked says"},
		"revoked, and deactivated already": {is: ready, admitted: true, inactive: true, said: said{Provisioned: yes, CapacityRevoked: yes}, want: ready, message: "before"},
	} {
		t.Run(name, func(t *testing.T) {
			wl := trainer([3]int32{1, 1, 4}, [3]kueue.ResourceFlavorReference{"spot", "spot", "spot"})
			wl.Spec.Active = ptr.To(!test.inactive)
			if test.admitted {
				wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: yes}}
			}
			request := &ProvisioningRequest{}
			request.Name = requestName("wl", "check", max(test.attempt, 1))
			request.Spec.ProvisioningClassName = "class"
			request.Status.ProvisioningClassDetails = map[string]string{"Pool": "p1"}
			for condition, status := range test.said {
				request.Status.Conditions = append(request.Status.Conditions, metav1.Condition{Type: condition, Status: status, Message: condition + " says"})
			}
			is := kueue.AdmissionCheckState{Name: "check", State: test.is, Message: "before", RetryCount: ptr.To(test.retried)}
			next := checkStateFor(wl, is, config, request, []group{{sets: []kueue.PodSetReference{"head", "workers"}}})
			if next.State != test.want || next.Message != test.message || ptr.Deref(next.RequeueAfterSeconds, 0) != test.after {
				t.Errorf("got %s %q after %d s, want %s %q after %d s", next.State, next.Message, ptr.Deref(next.RequeueAfterSeconds, 0), test.want, test.message, test.after)
			}
			if newly := test.want == ready && test.is != ready; newly != (len(next.PodSetUpdates) == 2) {
				t.Fatalf("updates are %v", next.PodSetUpdates)
			} else if newly {
				update := next.PodSetUpdates[1]
				if update.Name != "workers" || update.Annotations[ConsumeAnnotation] != "wl-check-1" || update.Annotations[ClassAnnotation] != "class" ||
					!maps.Equal(update.NodeSelector, map[string]string{"pool": "p1"}) {
					t.Errorf("the workers' update is %+v", update)
				}
			}
		})
	}
}

// Without a strategy the defaults of Kueue's API hold.
func TestPause(t *testing.T) {
	for retried, want := range map[int32]int32{0: 60, 1: 120, 4: 960, 5: 1800, 90: 1800} {
		is := retryOrReject(kueue.AdmissionCheckState{RetryCount: ptr.To(retried)}, 1, nil, "", "")
		if retried == 0 && ptr.Deref(is.RequeueAfterSeconds, 0) != want {
			t.Errorf("by default the first pause is %d s, want %d", ptr.Deref(is.RequeueAfterSeconds, 0), want)
		}
		if got := pause(retried, 60, 1800); got != want {
			t.Errorf("the pause after %d retries is %d s, want %d", retried, got, want)
		}
	}
}
