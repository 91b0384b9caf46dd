package request

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// PodSlots is the resource that pods are counted in, instead of the engine's own "pods": what holds
// cards for a claim is a pod to the engine, and none to the kubelet.
const PodSlots = "elasticgpu.io/pod-slots"

// Pod as the engine wants it, without gang and claims. A pod that is bound needs neither selectors nor
// tolerations; without them more pods share a request shape.
func Pod(pod *corev1.Pod, modes Modes) (placement.Pod, error) {
	p := placement.Pod{
		Key:    pod.Namespace + "/" + pod.Name,
		Policy: pod.Annotations[egpu.PolicyAnnotation],
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	var err error
	if p.Containers, err = containers(pod, modes); err != nil {
		return p, err
	}
	if egpu.IsSwappedOut(pod) {
		p.Containers = nil // its cards are free until it is called back
	}
	switch arrange := pod.Annotations[egpu.ArrangeAnnotation]; arrange {
	case "":
	case "together":
		p.Arrange = placement.Together
	case "apart":
		p.Arrange = placement.Apart
	default:
		return p, &placement.RequestError{Problem: fmt.Sprintf("annotation %s is %q: write together or apart", egpu.ArrangeAnnotation, arrange)}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	p.Resources = map[string]int64{PodSlots: 1}
	if cpu := amount(*requests.Cpu(), resource.Milli); cpu > 0 {
		p.Resources["cpu"] = cpu
	}
	if memory := amount(*requests.Memory(), 0); memory > 0 {
		p.Resources["memory"] = memory
	}
	if pod.Spec.NodeName == "" {
		p.Selector = pod.Spec.NodeSelector
		p.Affinity = affinity(pod.Spec.Affinity)
		p.Tolerations = tolerations(pod.Spec.Tolerations)
	}
	return p, nil
}

// containers that ask for cards; the others are none of the engine's business.
func containers(pod *corev1.Pod, modes Modes) ([]placement.Container, error) {
	var list []placement.Container
	models := Models(pod.Annotations[egpu.ModelsAnnotation])
	for _, group := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range group {
			cards, err := Container(&group[i], modes)
			if err != nil {
				return nil, err
			}
			if cards.Count > 0 {
				cards.Models = models
				list = append(list, placement.Container{Name: group[i].Name, Cards: cards})
			}
		}
	}
	return list, nil
}

// Models reads a comma list of card models.
func Models(text string) []string {
	var models []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			models = append(models, word)
		}
	}
	return models
}

func affinity(a *corev1.Affinity) []placement.Term {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return Terms(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
}

// Terms of a node selector.
func Terms(selector *corev1.NodeSelector) []placement.Term {
	if selector == nil {
		return nil
	}
	var terms []placement.Term
	for _, t := range selector.NodeSelectorTerms {
		term := placement.Term{}
		for _, r := range slices.Concat(t.MatchExpressions, t.MatchFields) {
			term = append(term, placement.Requirement{Key: r.Key, Operator: string(r.Operator), Values: r.Values})
		}
		terms = append(terms, term)
	}
	return terms
}

func tolerations(list []corev1.Toleration) []placement.Toleration {
	var out []placement.Toleration
	for _, t := range list {
		out = append(out, placement.Toleration{Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: string(t.Effect)})
	}
	return out
}

// Grants reads which cards the pod's containers were given. Only containers that ask for cards
// themselves count: the cards of claims are those of their ElasticGPUs.
func Grants(pod *corev1.Pod, containers []placement.Container) ([]placement.Grant, bool) {
	var grants []placement.Grant
	for _, c := range containers {
		text, given := pod.Annotations[egpu.ContainerPrefix+c.Name]
		if !given {
			return nil, false
		}
		indexes, err := ParseCards(text)
		if err != nil || len(indexes) == 0 {
			return nil, false
		}
		grant := placement.Grant{Container: c.Name}
		for _, index := range indexes {
			grant.Cards = append(grant.Cards, placement.CardGrant{Index: index})
		}
		grants = append(grants, grant)
	}
	return grants, true
}

// ParseCards reads card indexes: "0,1".
func ParseCards(text string) ([]int, error) {
	var indexes []int
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		index, err := strconv.Atoi(word)
		if err != nil || index < 0 {
			return nil, fmt.Errorf("card %q is no index", word)
		}
		indexes = append(indexes, index)
	}
	return indexes, nil
}

// FormatCards writes card indexes: "0,1".
func FormatCards(cards []placement.CardGrant) string {
	words := make([]string, len(cards))
	for i, c := range cards {
		words[i] = strconv.Itoa(c.Index)
	}
	return strings.Join(words, ",")
}

// Use of a claim by a container of a pod.
type Use struct{ Container, Claim string }

// Uses of claims that a pod's annotations name, in the order of the annotations' names.
func Uses(pod *corev1.Pod) []Use {
	var keys []string
	for key := range pod.Annotations {
		if strings.HasPrefix(key, egpu.ClaimPrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(pod.Spec.Containers) == 0 {
		return nil // one that no API server takes
	}
	var uses []Use
	for _, key := range keys {
		word := strings.TrimPrefix(key, egpu.ClaimPrefix)
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == word }) {
			if len(pod.Spec.Containers) == 0 {
				return nil // the API server takes no such pod, and an extender is sent what it is sent
			}
			word = pod.Spec.Containers[0].Name
		}
		uses = append(uses, Use{Container: word, Claim: pod.Annotations[key]})
	}
	return uses
}
