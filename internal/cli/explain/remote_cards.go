package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/job"
)

// remoteCards says of each claim of a job whose card is used from other nodes which card of which node that is, or why there is
// none. Claims that the person may not read are left out.
func remoteCards(ctx context.Context, c client.Reader, found *job.Job) []string {
	var lines []string
	for _, name := range claimsOf(found) {
		claim := &egpu.ElasticGPUClaim{}
		if c.Get(ctx, client.ObjectKey{Namespace: found.Object.GetNamespace(), Name: name}, claim) != nil {
			continue
		}
		var line string
		if claim.Spec.ElasticGPUName != "" {
			line = boundCard(ctx, c, claim)
		} else {
			line = cardToCome(ctx, c, claim, found.Pods)
		}
		if line != "" {
			lines = append(lines, "claim "+name+": "+line)
		}
	}
	return lines
}

// claimsOf a job's pods: those it has, or is to have.
func claimsOf(found *job.Job) []string {
	names := map[string]bool{}
	take := func(annotations map[string]string) {
		for key, name := range annotations {
			if strings.HasPrefix(key, egpu.ClaimPrefix) {
				names[name] = true
			}
		}
	}
	if found.Workload != nil {
		for i := range found.Workload.Spec.PodSets {
			take(found.Workload.Spec.PodSets[i].Template.Annotations)
		}
	}
	for _, pod := range found.Pods {
		take(pod.Annotations)
	}
	return slices.Sorted(maps.Keys(names))
}

// boundCard is where the card of a claim is; empty for one of the pod's own node.
func boundCard(ctx context.Context, c client.Reader, claim *egpu.ElasticGPUClaim) string {
	device := &egpu.ElasticGPU{}
	if c.Get(ctx, client.ObjectKey{Name: claim.Spec.ElasticGPUName}, device) != nil || device.Spec.RemoteGPU == nil {
		return ""
	}
	at := device.Spec.RemoteGPU
	if at.NodeName == "" {
		return "a card at " + at.Address
	}
	text := fmt.Sprintf("card %s of node %s, %s", at.GPUName, at.NodeName, shareOf(device.Spec.Capacity))
	if device.Status.Message != "" {
		text += "; " + device.Status.Message
	}
	return text
}

// shareOf a card, as its claim asks for it.
func shareOf(capacity corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		amount := capacity[name]
		parts = append(parts, strings.TrimPrefix(string(name), "elasticgpu.io/")+" "+amount.String())
	}
	return strings.Join(parts, ", ")
}

// cardToCome says what a claim waits for whose card may be on another node than its pods.
func cardToCome(ctx context.Context, c client.Reader, claim *egpu.ElasticGPUClaim, pods []*corev1.Pod) string {
	class := &egpu.ElasticGPUClass{}
	if c.Get(ctx, client.ObjectKey{Name: claim.ClassName()}, class) != nil || class.Parameters["sharing"] != egpu.SharingRemote {
		return ""
	}
	near := "of its pod's zone, or any"
	if distance := class.Parameters["distance"]; distance != "" {
		near = "as near as class " + class.Name + " says (" + distance + ")"
	}
	for _, pod := range pods {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Message != "" {
				return fmt.Sprintf("no card yet; it needs one %s, and pod %s waits: %s", near, pod.Name, condition.Message)
			}
		}
	}
	if claim.Status.Message != "" {
		return fmt.Sprintf("no card yet; it needs one %s: %s", near, claim.Status.Message)
	}
	return "no card yet; it gets one " + near + ", with its first pod"
}
