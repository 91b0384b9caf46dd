package multicluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

const (
	// A cluster is pinged from time to time, and at once when a watch breaks; one that does not answer,
	// after pauses that double.
	pingInterval             = 5 * time.Second
	pingTimeout              = 5 * time.Second
	firstPause, longestPause = time.Second, 10 * time.Second
	// syncTimeout is how long the initial lists of a cluster may take.
	syncTimeout = time.Minute
)

var workloadKind = kueue.SchemeGroupVersion.WithKind("Workload")

// connection to a cluster. While the cluster answers there is a session.
type connection struct {
	name, origin string
	scheme       *runtime.Scheme
	log          logr.Logger
	// changed is called when the cluster was found or lost, and seen when something of a workload
	// changed there.
	changed func()
	seen    func(types.NamespacedName)
	// quotas is called when the quota of queues there may be another; nil: nobody asks.
	quotas func()
	// most is how many objects of ours the cluster may have.
	most func() int
	// fence is around the cluster's transport; nil: none.
	fence func(http.RoundTripper) http.RoundTripper

	mu      sync.Mutex
	config  string // it was made with
	stop    func()
	session *session
	lost    time.Time // zero: the cluster answers
	cause   error     // why it does not answer; nil before the first try
}

// session is a cluster that answers: its informers have synced.
type session struct {
	client.Client // reads from the informers
	direct        client.Client
	cache         cache.Cache
	name, origin  string
	seen          func(types.NamespacedName)
	quotas        func()
	trouble       chan struct{}
	held          *held

	watching sync.Mutex
	watched  map[schema.GroupVersionKind]cache.Informer

	mu sync.Mutex
	// removed are copies that were deleted and that the cache may still show.
	removed map[types.UID]bool
}

// now is the session, or since when there is none and why.
func (c *connection) now() (*session, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, c.lost, c.cause
}

// connect starts connecting with a configuration, if it changed.
func (c *connection) connect(ctx context.Context, config *rest.Config, text string) {
	c.mu.Lock()
	same, stop := c.stop != nil && c.config == text, c.stop
	c.mu.Unlock()
	if same {
		return
	}
	if stop != nil {
		stop()
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	config.Wrap(c.fence)
	config.Wrap(throttle)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	c.mu.Lock()
	c.config, c.stop = text, func() { cancel(); <-ended }
	c.mu.Unlock()
	go func() {
		defer close(ended)
		c.reconnect(ctx, config)
	}()
}

// disconnect ends the session; why is the reason, if something is wrong.
func (c *connection) disconnect(why error) {
	c.mu.Lock()
	stop := c.stop
	c.stop, c.config = nil, ""
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.setLost(why)
}

// reconnect runs one session after another.
func (c *connection) reconnect(ctx context.Context, config *rest.Config) {
	pause := firstPause
	for {
		found, err := c.runSession(ctx, config)
		if ctx.Err() != nil {
			c.setLost(nil)
			return
		}
		c.setLost(err)
		if found {
			pause = firstPause
		}
		if errors.Is(err, errOverrun) {
			pause = overrunPause
		}
		c.log.Info("a cluster does not answer, trying again", "cluster", c.name, "after", pause, "error", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

func (c *connection) setLost(why error) {
	c.mu.Lock()
	news := c.session != nil || why != nil && (c.cause == nil || c.cause.Error() != why.Error())
	if c.session != nil || c.lost.IsZero() {
		c.lost = time.Now()
	}
	if c.session = nil; why != nil {
		c.cause = why
	}
	c.mu.Unlock()
	if news {
		c.changed()
	}
}

// runSession opens a session that lasts until the cluster does not answer.
func (c *connection) runSession(ctx context.Context, config *rest.Config) (found bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	s, err := c.open(ctx, config, cancel)
	if err != nil {
		cancel(nil)
		return false, err
	}
	go func() {
		defer close(ended)
		if err := s.cache.Start(ctx); err != nil {
			c.log.Error(err, "watching a cluster ended", "cluster", c.name)
		}
	}()
	defer func() { cancel(nil); <-ended }()
	if err := errors.Join(s.watchWorkloads(ctx), s.watchQueues(ctx)); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, err
	}
	c.mu.Lock()
	c.session, c.lost, c.cause = s, time.Time{}, nil
	c.mu.Unlock()
	c.changed()
	for {
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case <-s.trouble:
		case <-time.After(pingInterval):
		}
		if err := s.ping(ctx); err != nil {
			return true, err
		}
	}
}

// open makes the clients, and asks whether the cluster answers.
func (c *connection) open(ctx context.Context, config *rest.Config, fail func(error)) (*session, error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, transport)
	if err != nil {
		return nil, err
	}
	s := &session{
		name: c.name, origin: c.origin, seen: c.seen, quotas: c.quotas, trouble: make(chan struct{}, 1),
		held:    &held{most: c.most, fail: fail, objects: map[string]int{}},
		watched: map[schema.GroupVersionKind]cache.Informer{}, removed: map[types.UID]bool{},
	}
	if s.direct, err = client.New(config, client.Options{HTTPClient: transport, Scheme: c.scheme, Mapper: mapper}); err != nil {
		return nil, err
	}
	if err := s.ping(ctx); err != nil {
		return nil, err
	}
	var special map[client.Object]cache.ByObject // the cluster has to serve these
	if s.quotas != nil {
		queues := cache.ByObject{Label: labels.Everything(), Transform: s.held.withoutStatus}
		special = map[client.Object]cache.ByObject{&kueue.LocalQueue{}: queues, &kueue.ClusterQueue{}: queues}
	}
	s.cache, err = cache.New(config, cache.Options{
		HTTPClient: transport, Scheme: c.scheme, Mapper: mapper,
		ByObject:             special,
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{kueue.MultiKueueOriginLabel: c.origin}),
		DefaultTransform:     s.held.count,
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			c.log.V(1).Info("a watch of a cluster broke", "cluster", c.name, "error", err.Error())
			select {
			case s.trouble <- struct{}{}:
			default: // a ping is due anyway
			}
		},
	})
	if err != nil {
		return nil, err
	}
	s.Client, err = client.New(config, client.Options{
		HTTPClient: transport, Scheme: c.scheme, Mapper: mapper,
		Cache: &client.CacheOptions{Reader: s.cache, Unstructured: true},
	})
	return s, err
}

// ping asks whether the cluster answers, and lets us list our workloads.
func (s *session) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return s.direct.List(ctx, &kueue.WorkloadList{}, client.MatchingLabels{kueue.MultiKueueOriginLabel: s.origin}, client.Limit(1))
}

// prebuiltIndex finds the jobs of a workload.
const prebuiltIndex = "prebuilt-workload"

// errNotSeen: the informer of a kind has not synced yet.
var errNotSeen = errors.New("has not listed its jobs yet")

// watchJobs watches jobs of a kind, from the first one on.
func (s *session) watchJobs(ctx context.Context, gvk schema.GroupVersionKind) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	informer, err := s.watch(ctx, obj, gvk)
	if err == nil && !informer.HasSynced() {
		err = errNotSeen
	}
	return err
}

// watchWorkloads watches copies, and waits until the informer has synced.
func (s *session) watchWorkloads(ctx context.Context) error {
	informer, err := s.watch(ctx, &kueue.Workload{}, workloadKind)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("it did not list all its workloads within %s", syncTimeout)
	}
	return nil
}

func (s *session) watch(ctx context.Context, obj client.Object, gvk schema.GroupVersionKind) (cache.Informer, error) {
	s.watching.Lock()
	defer s.watching.Unlock()
	if informer := s.watched[gvk]; informer != nil {
		return informer, nil
	}
	if len(s.watched) >= mostKinds {
		return nil, fmt.Errorf("it has jobs of more than %d kinds", mostKinds)
	}
	informer, err := s.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if gvk != workloadKind {
		if err := s.cache.IndexField(ctx, obj, prebuiltIndex, func(obj client.Object) []string { return []string{kinds.PrebuiltName(obj)} }); err != nil {
			return nil, err
		}
	}
	if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.requeue(obj, false) },
		UpdateFunc: func(_, obj any) { s.requeue(obj, false) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			s.requeue(obj, true)
		},
	}); err != nil {
		return nil, err
	}
	s.watched[gvk] = informer
	return informer, nil
}

// requeue the workload that an object there belongs to.
func (s *session) requeue(seen any, deleted bool) {
	obj, ok := seen.(client.Object)
	if !ok {
		return
	}
	if deleted {
		s.forget(obj)
	}
	key := client.ObjectKeyFromObject(obj)
	if _, isWorkload := obj.(*kueue.Workload); isWorkload {
		s.seen(key)
		return
	}
	if name := kinds.PrebuiltName(obj); name != "" {
		s.seen(types.NamespacedName{Namespace: key.Namespace, Name: name})
		return
	}
	copies := &kueue.WorkloadList{}
	if err := s.List(context.Background(), copies, client.InNamespace(key.Namespace)); err != nil {
		return // the informer is being stopped
	}
	for i := range copies.Items {
		if gvk, name := sharedJob(&copies.Items[i]); name == key.Name && gvk == obj.GetObjectKind().GroupVersionKind() {
			s.seen(client.ObjectKeyFromObject(&copies.Items[i]))
		}
	}
}

// forget an object that was deleted. One of its name may be held again by now.
func (s *session) forget(obj client.Object) {
	again := obj.DeepCopyObject().(client.Object)
	if err := s.cache.Get(context.Background(), client.ObjectKeyFromObject(obj), again); err != nil {
		s.held.forget(obj)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.removed, obj.GetUID())
}

// copyOf is the copy of a workload; nil: none.
func (s *session) copyOf(ctx context.Context, key types.NamespacedName) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	if err := s.Get(ctx, key, wl); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed[wl.UID] {
		return nil, nil
	}
	return wl, nil
}

// jobsOf are the parts of a workload's job that exist there, or the job that its copy may share
// with others.
func (s *session) jobsOf(ctx context.Context, key types.NamespacedName, gvk schema.GroupVersionKind, copied *kueue.Workload) ([]unstructured.Unstructured, error) {
	if err := s.watchJobs(ctx, gvk); err != nil {
		return nil, err
	}
	if shared, name := sharedJob(copied); name != "" && shared == gvk {
		job := unstructured.Unstructured{}
		job.SetGroupVersionKind(gvk)
		if err := s.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, &job); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return []unstructured.Unstructured{job}, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := s.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{prebuiltIndex: key.Name})
	return list.Items, err
}
