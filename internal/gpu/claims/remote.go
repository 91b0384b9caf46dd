package claims

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// defaultDistance prefers the same zone, and takes any node.
var defaultDistance = []string{corev1.LabelTopologyZone, placement.Anywhere}

// mostLevels that a class may name: each is looked through.
const mostLevels = 8

// Levels within which the cards of a class are of their pod, the nearest first, for a class whose cards are used over the
// network; nil for any other. Its parameter distance has the node labels: "example.com/rack,topology.kubernetes.io/zone", with
// "any" at the end for no bound.
func Levels(class *egpu.ElasticGPUClass) ([]string, error) {
	if class.Parameters["sharing"] != egpu.SharingRemote {
		return nil, nil
	}
	bad := func(format string, args ...any) ([]string, error) {
		return nil, &placement.RequestError{Problem: "class " + class.Name + " has its cards used from other nodes: its administrator " + fmt.Sprintf(format, args...)}
	}
	if class.Provisioner != egpu.ProvisionerShare {
		return bad("names the provisioner %s", egpu.ProvisionerShare)
	}
	if class.Parameters["backend"] != "" {
		return bad("leaves out the parameter backend")
	}
	text := class.Parameters["distance"]
	if text == "" {
		return defaultDistance, nil
	}
	levels := strings.Split(text, ",")
	if len(levels) > mostLevels {
		return bad("names at most %d labels in the parameter distance", mostLevels)
	}
	for i := range levels {
		levels[i] = strings.TrimSpace(levels[i])
		if levels[i] == "" || levels[i] == placement.Anywhere && i < len(levels)-1 {
			return bad("writes node labels into the parameter distance, the nearest first, as a,b or a,b,%s", placement.Anywhere)
		}
	}
	return levels, nil
}

// within is from where a card of a node may be used: from its farthest level that the node is labelled with.
func within(levels []string, node string, nodes Nodes) *egpu.GPUNodeAffinity {
	if levels[len(levels)-1] == placement.Anywhere {
		return nil
	}
	terms := []corev1.NodeSelectorTerm{onNode(node).Required.NodeSelectorTerms[0]}
	for _, level := range levels {
		if value := nodes.NodeLabel(node, level); value != "" {
			terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: level, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
			}})
		}
	}
	return &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}} // any of these
}
