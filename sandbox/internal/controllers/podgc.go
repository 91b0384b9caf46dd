package controllers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	utilpod "k8s.io/kubernetes/pkg/util/pod"
)

const (
	podGCPeriod = 20 * time.Second
	// goneFor is for how long a node must be gone before its pods are deleted: it may be made again.
	goneFor = 40 * time.Second
	// mostEnded is how many pods that have ended are kept.
	mostEnded = 12500
)

// podGC deletes pods that no kubelet will: those of nodes that are gone or out of service, those that are deleted before they
// had a node, and the oldest that have ended where there are too many. It does what kube-controller-manager's does, which
// for one comparison with a string needs the packages of a kubelet.
type podGC struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	synced []cache.InformerSynced
	now    func() time.Time
	gone   map[string]time.Time // nodes that pods have and that are not there, and since when
}

func newPodGC(client kubernetes.Interface, core coreinformers.Interface) *podGC {
	return &podGC{
		client: client, pods: core.Pods().Lister(), nodes: core.Nodes().Lister(), now: time.Now, gone: map[string]time.Time{},
		synced: []cache.InformerSynced{core.Pods().Informer().HasSynced, core.Nodes().Informer().HasSynced},
	}
}

func newPodGarbageCollector(e *env) (runner, error) {
	g := newPodGC(e.client, e.core())
	return loop(func(ctx context.Context) {
		if cache.WaitForCacheSync(ctx.Done(), g.synced...) {
			wait.UntilWithContext(ctx, g.collect, podGCPeriod)
		}
	}), nil
}

func (g *podGC) collect(ctx context.Context) {
	pods, err := g.pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "listing pods")
		return
	}
	gone := map[string]time.Time{}
	var ended []*corev1.Pod
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			ended = append(ended, pod)
		}
		switch node, err := g.nodes.Get(pod.Spec.NodeName); {
		case pod.Spec.NodeName == "":
			if pod.DeletionTimestamp != nil {
				g.remove(ctx, pod, nil)
			}
		case err == nil:
			if pod.DeletionTimestamp != nil && outOfService(node) {
				g.remove(ctx, pod, nil)
			}
		case g.isGone(ctx, pod.Spec.NodeName, gone):
			g.remove(ctx, pod, &corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
				ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, corev1.DisruptionTarget),
			})
		}
	}
	g.gone = gone
	for _, pod := range tooMany(ended, mostEnded) {
		g.remove(ctx, pod, nil)
	}
}

// isGone says whether a node that is not in the cache has been gone for long enough, and notes since when it has been.
func (g *podGC) isGone(ctx context.Context, node string, noted map[string]time.Time) bool {
	since, known := g.gone[node]
	if !known {
		since = g.now()
	}
	noted[node] = since
	if g.now().Sub(since) < goneFor {
		return false
	}
	_, err := g.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func outOfService(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// tooMany are the pods beyond so many: evicted ones first, then the oldest.
func tooMany(pods []*corev1.Pod, most int) []*corev1.Pod {
	if len(pods) <= most {
		return nil
	}
	evicted := func(p *corev1.Pod) int {
		if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
			return 0
		}
		return 1
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(evicted(a)-evicted(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods[:len(pods)-most]
}

// remove marks a pod as failed, which its kubelet does not, and deletes it at once.
func (g *podGC) remove(ctx context.Context, pod *corev1.Pod, condition *corev1.PodCondition) {
	err := func() error {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			status := pod.Status.DeepCopy()
			status.Phase, status.ObservedGeneration = corev1.PodFailed, podutil.CalculatePodStatusObservedGeneration(pod)
			if condition != nil {
				podutil.UpdatePodCondition(status, condition)
			}
			if _, _, _, err := utilpod.PatchPodStatus(ctx, g.client, pod.Namespace, pod.Name, pod.UID, pod.Status, *status); err != nil {
				return err
			}
		}
		return g.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
	}()
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "deleting a pod that no kubelet will delete", "pod", klog.KObj(pod))
	}
}
