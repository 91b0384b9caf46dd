package discovery

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Simulated has the cards that nodes claim in their labels: simulated nodes, or the one that is named.
type Simulated struct{ Node string }

// SimulatedAnnotation marks a node that has no kubelet and no cards.
const SimulatedAnnotation = "kwok.x-k8s.io/node"

// ProblemAnnotation on a simulated node makes cards fail: "3=fell off the bus".
// Several are separated by semicolons.
const ProblemAnnotation = "sandbox.elasticai.io/gpu-problem"

// LoadAnnotation on a simulated node has cards report how busy they are, in percent: "0=70; 3=15". Others report nothing.
const LoadAnnotation = "sandbox.elasticai.io/gpu-load"

// Serves every simulated node, or the one that is named.
func (s Simulated) Serves(node *corev1.Node) bool {
	if s.Node != "" {
		return node.Name == s.Node
	}
	return node.Annotations[SimulatedAnnotation] != ""
}

// Cards as the node's labels describe them, all linked with each other.
func (Simulated) Cards(_ context.Context, node *corev1.Node) ([]Card, error) {
	count, err := number(node, "nvidia.com/gpu.count")
	if err != nil {
		return nil, err
	}
	memory, err := number(node, "nvidia.com/gpu.memory")
	if err != nil {
		return nil, err
	}
	problems, err := parseProblems(node.Annotations[ProblemAnnotation])
	if err != nil {
		return nil, fmt.Errorf("annotation %s of node %s: %w", ProblemAnnotation, node.Name, err)
	}
	loads, err := parseLoads(node.Annotations[LoadAnnotation])
	if err != nil {
		return nil, fmt.Errorf("annotation %s of node %s: %w", LoadAnnotation, node.Name, err)
	}
	cards := make([]Card, count)
	for i := range cards {
		cards[i] = Card{
			Index:    i,
			UUID:     fmt.Sprintf("GPU-simulated-%s-%d", node.Name, i),
			Model:    node.Labels["elasticgpu.io/gpu-model"],
			Path:     fmt.Sprintf("/dev/nvidia%d", i),
			MemoryMB: int64(memory),
			NUMA:     i * 2 / count,
			Problem:  problems[i],
			Load:     loads[i],
		}
	}
	return cards, nil
}

func number(node *corev1.Node, label string) (int, error) {
	text, ok := node.Labels[label]
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("label %s of node %s is %q, not a number", label, node.Name, text)
	}
	return n, nil
}

// Processes are none: nothing runs on a card that is a label.
func (Simulated) Processes(context.Context, string) ([]Process, error) { return nil, nil }
