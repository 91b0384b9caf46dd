// Package podwebhook completes pods that request cards, and denies invalid requests with what to write
// instead.
//
// Words: docs/design/glossary.md.
package podwebhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Path is where the API server sends pods.
const Path = "/mutate-pod"

// Completer completes pods.
type Completer struct {
	Modes request.Modes
	// SchedulerName is given to pods that ask for cards and name no scheduler; empty leaves them alone.
	SchedulerName string
	// Policies are those of the configuration, which pods may name beside the built-in ones.
	Policies map[string]string
	// LargestCard is the most memory of any card, 0 if not known.
	LargestCard func(context.Context) (int64, error)
}

// New makes the webhook.
func New(c *Completer) *webhook.Admission { return &webhook.Admission{Handler: c} }

// Handle answers one admission request.
func (c *Completer) Handle(ctx context.Context, r admission.Request) admission.Response {
	if r.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(r.Object.Raw, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the pod: %w", err))
	}
	if err := c.Complete(ctx, pod); err != nil {
		return admission.Denied(err.Error())
	}
	changed, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(r.Object.Raw, changed)
}

// Complete changes the pod in place. The error is for the pod's author.
func (c *Completer) Complete(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.Containers) == 0 {
		return nil // the API server says what is missing
	}
	for _, group := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range group {
			respell(&group[i])
		}
	}
	asked, err := request.Pod(pod, c.Modes)
	if err != nil {
		return err
	}
	var most int64
	for _, container := range asked.Containers {
		most = max(most, container.Cards.Memory)
	}
	if err := c.fits(ctx, most); err != nil {
		return err
	}
	if err := c.knownPolicy(asked.Policy); err != nil {
		return err
	}
	uses := request.Uses(pod)
	if err := mark(pod, asked.Containers, uses); err != nil {
		return err
	}
	defaulted := pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName
	if c.SchedulerName != "" && defaulted && len(asked.Containers)+len(uses) > 0 {
		pod.Spec.SchedulerName = c.SchedulerName
	}
	return nil
}

// respell the old resource names.
func respell(c *corev1.Container) {
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for old, name := range map[corev1.ResourceName]corev1.ResourceName{
			egpu.ResourceCoreOld: egpu.ResourceCore, egpu.ResourceMemoryOld: egpu.ResourceMemory,
		} {
			if value, given := list[old]; given {
				if _, both := list[name]; !both {
					list[name] = value
				}
				delete(list, old)
			}
		}
	}
}

func (c *Completer) fits(ctx context.Context, memory int64) error {
	if memory == 0 {
		return nil
	}
	largest, err := c.LargestCard(ctx)
	if err != nil || largest == 0 || memory <= largest {
		return nil // what is not known is no reason to deny a pod
	}
	return fmt.Errorf("%d MiB of one card's memory: the largest card here has %d; write %d or less, or spread the work over several cards",
		memory, largest, largest)
}

func (c *Completer) knownPolicy(name string) error {
	if name == "" {
		return nil
	}
	if _, named := c.Policies[name]; named {
		return nil
	}
	if _, err := policy.Parse(name); err != nil {
		return fmt.Errorf("annotation %s: %w", egpu.PolicyAnnotation, err)
	}
	return nil
}

// mark the containers that get cards, by a share or by a claim, with the resource that has the
// kubelet ask the agent about them; for a claim it is also what has kube-scheduler ask the extender.
func mark(pod *corev1.Pod, asking []placement.Container, uses []request.Use) error {
	marked := map[string]bool{}
	for _, c := range asking {
		marked[c.Name] = true
	}
	for _, use := range uses {
		if marked[use.Container] {
			return fmt.Errorf("container %s asks for cards and uses the claim %s: use one of the two", use.Container, use.Claim)
		}
	}
	for _, use := range uses {
		marked[use.Container] = true
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		_, whole := c.Resources.Limits[egpu.ResourceWhole]
		switch {
		case !marked[c.Name]:
		case c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways:
			give(c)
		case !whole: // another plugin may serve whole cards, and knows how
			return fmt.Errorf("init container %s asks for a share: the kubelet does not say which device such a container has; "+
				"make it a sidecar (restartPolicy: Always), or ask in an ordinary container", c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		if marked[pod.Spec.Containers[i].Name] {
			give(&pod.Spec.Containers[i])
		}
	}
	return nil
}

// give a container its one device.
func give(c *corev1.Container) {
	for _, list := range []*corev1.ResourceList{&c.Resources.Limits, &c.Resources.Requests} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[egpu.ResourceClaim] = resource.MustParse("1")
	}
}
