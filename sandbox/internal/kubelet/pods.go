package kubelet

import (
	"context"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const podWorkers = 32

var podNetwork = netip.MustParsePrefix("10.128.0.0/9")

// pods carries out next for every pod on a simulated node.
type pods struct {
	client    kubernetes.Interface
	nodes     corelisters.NodeLister
	pods      corelisters.PodLister
	indexer   cache.Indexer
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	addresses *addresses

	mu    sync.Mutex
	began map[types.UID]time.Time // when containers last started
}

func newPods(client kubernetes.Interface, nodes corelisters.NodeLister, informer cache.SharedIndexInformer) (*pods, error) {
	if err := informer.AddIndexers(cache.Indexers{byNode: podNode}); err != nil {
		return nil, err
	}
	p := &pods{
		indexer:   informer.GetIndexer(),
		client:    client,
		nodes:     nodes,
		pods:      corelisters.NewPodLister(informer.GetIndexer()),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		addresses: newAddresses(podNetwork),
		began:     map[types.UID]time.Time{},
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.seen(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { p.seen(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			p.gone(obj.(*corev1.Pod))
		},
	})
	return p, err
}

func (p *pods) seen(pod *corev1.Pod) {
	p.addresses.use(pod.Status.PodIP)
	p.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

func (p *pods) gone(pod *corev1.Pod) {
	p.addresses.free(pod.Status.PodIP)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.began, pod.UID)
}

// run works until the context ends.
func (p *pods) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range podWorkers {
		workers.Go(func() {
			for p.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	workers.Wait()
}

func (p *pods) work(ctx context.Context) bool {
	key, quit := p.queue.Get()
	if quit {
		return false
	}
	defer p.queue.Done(key)
	again, err := p.sync(ctx, key)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// A newer version of the pod is on its way and brings it back here.
		p.queue.Forget(key)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Simulated pod", "pod", key)
		p.queue.AddRateLimited(key)
	default:
		p.queue.Forget(key)
		if again > 0 {
			p.queue.AddAfter(key, again)
		}
	}
	return true
}

func (p *pods) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := p.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return 0, err
	}
	node, err := p.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) || err == nil && node.Annotations[FakeAnnotation] != fakeValue {
		return 0, nil // no node of ours; a node that comes later brings its pods back
	}
	if err != nil {
		return 0, err
	}
	var taken string
	now := time.Now()
	s := next(pod, now, p.beganAt(pod), hostIP(node), func() string {
		taken, err = p.addresses.take()
		return taken
	})
	if err != nil {
		return 0, err
	}
	if s.status != nil {
		if err := p.write(ctx, pod, s.status, now); err != nil {
			p.addresses.free(taken)
			return 0, err
		}
	}
	if s.remove {
		uid := pod.UID
		err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &uid},
		})
		return 0, err
	}
	return s.again, nil
}

func (p *pods) write(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) error {
	changed := pod.DeepCopy()
	changed.Status = *status
	if _, err := p.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if start := startOf(changed); !start.IsZero() && start != startOf(pod) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.began[pod.UID] = now
	}
	return nil
}

// beganAt is when the pod's containers last started; after a restart of the
// sandbox only their status still knows, to the second.
func (p *pods) beganAt(pod *corev1.Pod) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.began[pod.UID]; ok {
		return t
	}
	return startOf(pod)
}

func startOf(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.State.Running.StartedAt.Time
		}
	}
	return time.Time{}
}

// byNode indexes pods by the node they are bound to.
const byNode = "node"

func podNode(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }

// onNode brings back the pods that were bound to a node before it was seen.
func (p *pods) onNode(name string) {
	bound, err := p.indexer.ByIndex(byNode, name)
	if err != nil {
		return // only without the index, which newPods adds
	}
	for _, obj := range bound {
		pod := obj.(*corev1.Pod)
		p.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}
