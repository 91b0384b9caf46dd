package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// collected are the pods that are deleted when it is looked at these times after the start, and the patches of statuses.
func collected(t *testing.T, nodes []corev1.Node, pods []corev1.Pod, at ...time.Duration) (deleted, disrupted []string) {
	t.Helper()
	client := fake.NewClientset(&corev1.NodeList{Items: nodes}, &corev1.PodList{Items: pods})
	all := informers.NewSharedInformerFactory(client, 0)
	g := newPodGC(client, all.Core().V1())
	all.Start(t.Context().Done())
	all.WaitForCacheSync(t.Context().Done())
	start := time.Now()
	for _, after := range at {
		g.now = func() time.Time { return start.Add(after) }
		g.collect(t.Context())
	}
	for _, action := range client.Actions() {
		switch a := action.(type) {
		case interface {
			GetName() string
			GetPatch() []byte
		}:
			disrupted = append(disrupted, a.GetName()+" "+string(a.GetPatch()))
		case interface{ GetName() string }:
			if action.Matches("delete", "pods") {
				deleted = append(deleted, a.GetName())
			}
		}
	}
	slices.Sort(deleted)
	return deleted, disrupted
}

func pod(name, node string, change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}, Spec: corev1.PodSpec{NodeName: node}}
	p.Status.Phase = corev1.PodRunning
	if change != nil {
		change(&p)
	}
	return p
}

func deleted(p *corev1.Pod) {
	p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/f"}
}

// TestPodsWithoutNode: those of a node that is gone end as disrupted, once it has been gone for a while.
func TestPodsWithoutNode(t *testing.T) {
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "here"}}}
	pods := []corev1.Pod{pod("stays", "here", nil), pod("goes", "gone", nil), pod("waits", "", nil), pod("unbound", "", deleted)}
	if got, _ := collected(t, nodes, pods, 0, goneFor-time.Second); !slices.Equal(slices.Compact(got), []string{"unbound"}) {
		t.Errorf("before the node was gone for long: deleted %v", got)
	}
	got, disrupted := collected(t, nodes, pods, 0, goneFor)
	if !slices.Equal(slices.Compact(got), []string{"goes", "unbound"}) {
		t.Errorf("deleted %v", got)
	}
	if !slices.ContainsFunc(disrupted, func(s string) bool {
		return strings.HasPrefix(s, "goes ") && strings.Contains(s, `"phase":"Failed"`) && strings.Contains(s, `"reason":"DeletionByPodGC"`) && strings.Contains(s, `"type":"DisruptionTarget"`)
	}) {
		t.Errorf("statuses written: %v", disrupted)
	}
	// A node that was made again keeps its pods, and one that the cache does not know yet, too.
	again := append(slices.Clone(nodes), corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}})
	if got, _ := collected(t, again, pods, 0, goneFor); slices.Contains(got, "goes") {
		t.Errorf("deleted %v", got)
	}
}

// TestPodsOutOfService: pods that are deleted on a node that will not come back go at once.
func TestPodsOutOfService(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, taint string) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: taint}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	nodes := []corev1.Node{node("off", corev1.ConditionUnknown, corev1.TaintNodeOutOfService), node("silent", corev1.ConditionUnknown, "x"), node("on", corev1.ConditionTrue, corev1.TaintNodeOutOfService)}
	pods := []corev1.Pod{pod("goes", "off", deleted), pod("runs", "off", nil), pod("hangs", "silent", deleted), pod("ends", "on", deleted)}
	if got, _ := collected(t, nodes, pods, 0); !slices.Equal(got, []string{"goes"}) {
		t.Errorf("deleted %v", got)
	}
}

func TestTooManyPods(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 5 {
		p := pod(fmt.Sprint(i), "here", func(p *corev1.Pod) {
			p.Status.Phase, p.CreationTimestamp = corev1.PodSucceeded, metav1.Unix(int64(10-i), 0)
		})
		pods = append(pods, &p)
	}
	pods[1].Status.Phase, pods[1].Status.Reason = corev1.PodFailed, "Evicted"
	var names []string
	for _, p := range tooMany(pods, 2) {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"1", "4", "3"}) {
		t.Errorf("deleted %v: evicted ones come first, then the oldest", names)
	}
	if tooMany(pods, 5) != nil {
		t.Error("not too many")
	}
}
