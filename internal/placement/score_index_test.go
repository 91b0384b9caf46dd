package placement

import "testing"

// A node may go and another come in its place between two questions.
func TestAnotherNodeInThePlaceOfOneThatWent(t *testing.T) {
	cordoned, ready := gpuNode("cordoned", 1, "T4", 16000), gpuNode("ready", 1, "T4", 16000)
	cordoned.Unschedulable = true
	e := newEngine(t, Options{}, cordoned)
	pod := sharePod(t, "ns/p", 10)
	if node, err := e.Best(&pod); err == nil {
		t.Fatalf("%s takes it, and is cordoned", node)
	}
	apply(t, e, NodeGone{"cordoned"})
	apply(t, e, NodeChanged{ready})
	if node, err := e.Best(&pod); err != nil || node != "ready" {
		t.Errorf("got %q, %v", node, err)
	}
}
