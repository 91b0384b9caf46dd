package podwebhook

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

func completer(largest int64, err error) *Completer {
	return &Completer{
		SchedulerName: "elastic", Policies: map[string]string{"quiet": "spread"},
		LargestCard: func(context.Context) (int64, error) { return largest, err },
	}
}

func pod(annotations map[string]string, limits ...corev1.ResourceName) *corev1.Pod {
	p := &corev1.Pod{}
	p.Annotations = annotations
	list := corev1.ResourceList{}
	for _, name := range limits {
		list[name] = resource.MustParse("50")
	}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list}}, {Name: "side"}}
	return p
}

func TestComplete(t *testing.T) {
	p := pod(nil, egpu.ResourceCoreOld, egpu.ResourceMemoryOld)
	if err := completer(1000, nil).Complete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	limits := p.Spec.Containers[0].Resources.Limits
	if len(limits) != 3 || limits.Name(egpu.ResourceCore, "").Value() != 50 || limits.Name(egpu.ResourceMemory, "").Value() != 50 {
		t.Errorf("limits %v: want the spelling that is served, alone", limits)
	}
	if limits.Name(egpu.ResourceClaim, "").Value() != 1 {
		t.Errorf("limits %v: want the device that has the kubelet ask the agent", limits)
	}
	if side := p.Spec.Containers[1].Resources; len(side.Limits) != 0 || len(side.Requests) != 0 {
		t.Errorf("the container without cards has %v", side)
	}
	if p.Spec.SchedulerName != "elastic" {
		t.Errorf("scheduler %q", p.Spec.SchedulerName)
	}

	p = pod(map[string]string{egpu.ClaimPrefix + "side": "mine"})
	p.Spec.SchedulerName = "of-their-own"
	if err := completer(1000, nil).Complete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, marked := p.Spec.Containers[0].Resources.Limits[egpu.ResourceClaim]; marked {
		t.Error("the container that does not use the claim is marked")
	}
	side := p.Spec.Containers[1].Resources
	if side.Limits.Name(egpu.ResourceClaim, "").Value() != 1 || side.Requests.Name(egpu.ResourceClaim, "").Value() != 1 {
		t.Errorf("the container that uses the claim has %v", side)
	}
	if p.Spec.SchedulerName != "of-their-own" {
		t.Errorf("a scheduler that was named became %q", p.Spec.SchedulerName)
	}

	p = pod(nil, corev1.ResourceCPU)
	if err := completer(1000, nil).Complete(t.Context(), p); err != nil || p.Spec.SchedulerName != "" {
		t.Errorf("a pod without cards: %v, scheduler %q", err, p.Spec.SchedulerName)
	}
}

// The kubelet says which device a sidecar has, but not for other init containers.
func TestInitContainers(t *testing.T) {
	p := pod(nil)
	always := corev1.ContainerRestartPolicyAlways
	share := corev1.ResourceRequirements{Limits: corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30")}}
	p.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: &always, Resources: *share.DeepCopy()}}
	if err := completer(1000, nil).Complete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if limits := p.Spec.InitContainers[0].Resources.Limits; limits.Name(egpu.ResourceClaim, "").Value() != 1 {
		t.Errorf("the sidecar has %v", limits)
	}
	p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Resources: *share.DeepCopy()}}
	if err := completer(1000, nil).Complete(t.Context(), p); err == nil || !strings.Contains(err.Error(), "make it a sidecar") {
		t.Errorf("an init container with a share: %v", err)
	}
	p.Spec.InitContainers[0].Resources.Limits = corev1.ResourceList{egpu.ResourceWhole: resource.MustParse("1")}
	if err := completer(1000, nil).Complete(t.Context(), p); err != nil {
		t.Errorf("an init container with a card of another plugin's: %v", err)
	}
}

func TestRefuse(t *testing.T) {
	for name, tc := range map[string]struct {
		pod       *corev1.Pod
		completer *Completer
		want      string // empty: it is let through
	}{
		"memory beyond any card":       {pod: pod(nil, egpu.ResourceMemory), completer: completer(40, nil), want: "write 40 or less"},
		"cards are not known":          {pod: pod(nil, egpu.ResourceMemory), completer: completer(0, nil)},
		"cards cannot be known":        {pod: pod(nil, egpu.ResourceMemory), completer: completer(0, errors.New("starting"))},
		"two ways at once":             {pod: pod(nil, egpu.ResourceCore, egpu.ResourceWhole), completer: completer(99, nil), want: "more than one way"},
		"a policy of ours":             {pod: pod(map[string]string{egpu.PolicyAnnotation: "node=spread,card=binpack"}, egpu.ResourceCore), completer: completer(99, nil)},
		"a policy by name":             {pod: pod(map[string]string{egpu.PolicyAnnotation: "quiet"}, egpu.ResourceCore), completer: completer(99, nil)},
		"no policy at all":             {pod: pod(map[string]string{egpu.PolicyAnnotation: "loud"}, egpu.ResourceCore), completer: completer(99, nil), want: `no rule "loud"`},
		"claim and cards at once":      {pod: pod(map[string]string{egpu.ClaimPrefix + "main": "c"}, egpu.ResourceCore), completer: completer(99, nil), want: "use one of the two"},
		"neither together nor apart":   {pod: pod(map[string]string{egpu.ArrangeAnnotation: "sideways"}, egpu.ResourceCore), completer: completer(99, nil), want: "write together or apart"},
		"no containers: not our worry": {pod: &corev1.Pod{}, completer: completer(99, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			r := tc.completer.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
			}})
			if r.Allowed != (tc.want == "") {
				t.Fatalf("allowed %v: %v", r.Allowed, r.Result)
			}
			if tc.want != "" && !strings.Contains(r.Result.Message, tc.want) {
				t.Fatalf("%q does not say %q", r.Result.Message, tc.want)
			}
		})
	}
}
