package web

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/stream"
)

// source is a kind that is watched, and how its objects change the state.
type source struct {
	what       string // the resource
	version    schema.GroupVersion
	namespaced bool
	object     client.Object
	list       func() client.ObjectList
	read       stream.Decoder // of a watch
	accept     string         // another form than JSON of the object
	selector   string         // only objects with this label
	// quiet: people who may not read it miss little, and are not told.
	quiet bool
	// show makes a record of an object, and returns what puts it into a state: the one beside other readers, the other one by one.
	show func(client.Object) func(*State)
	drop func(s *State, key string)
}

// sources in the order of what the page needs first.
var sources = []source{
	{
		what: "clusterqueues", version: kueue.SchemeGroupVersion,
		object: &kueue.ClusterQueue{}, list: func() client.ObjectList { return &kueue.ClusterQueueList{} }, read: readAll[kueue.ClusterQueue],
		show: func(o client.Object) func(*State) {
			name, queue := o.GetName(), queueOf(o.(*kueue.ClusterQueue))
			return func(s *State) { s.queues[name] = queue; s.mark(kindQueues, name) }
		},
		drop: func(s *State, key string) { delete(s.queues, key); s.mark(kindQueues, key) },
	},
	{
		what: "cohorts", version: kueue.SchemeGroupVersion,
		object: &kueue.Cohort{}, list: func() client.ObjectList { return &kueue.CohortList{} }, read: readAll[kueue.Cohort],
		show: func(o client.Object) func(*State) {
			name, cohort := o.GetName(), cohortOf(o.(*kueue.Cohort))
			return func(s *State) { s.cohorts[name] = cohort; s.mark(kindCohorts, name) }
		},
		drop: func(s *State, key string) { delete(s.cohorts, key); s.mark(kindCohorts, key) },
	},
	{
		what: "resourceflavors", version: kueue.SchemeGroupVersion, quiet: true,
		object: &kueue.ResourceFlavor{}, list: func() client.ObjectList { return &kueue.ResourceFlavorList{} }, read: readAll[kueue.ResourceFlavor],
		show: func(o client.Object) func(*State) {
			name, model := o.GetName(), o.(*kueue.ResourceFlavor).Spec.NodeLabels[modelLabel]
			return func(s *State) { s.prices.models[name] = model }
		},
		drop: func(s *State, key string) { delete(s.prices.models, key) },
	},
	{
		what: "nodes", version: corev1.SchemeGroupVersion,
		object: &corev1.Node{}, list: func() client.ObjectList { return &corev1.NodeList{} }, read: readNode,
		show: func(o client.Object) func(*State) {
			node := nodeOf(o.(*corev1.Node))
			return func(s *State) { s.setNode(node) }
		},
		drop: func(s *State, key string) { s.dropNode(key) },
	},
	{
		what: "gpus", version: egpu.GroupVersion,
		object: &egpu.GPU{}, list: func() client.ObjectList { return &egpu.GPUList{} }, read: readGPU,
		show: func(o client.Object) func(*State) {
			node, card := o.(*egpu.GPU).Spec.NodeName, cardOf(o.(*egpu.GPU))
			return func(s *State) { s.setCard(node, card) }
		},
		drop: func(s *State, key string) { s.dropCard(key) },
	},
	{
		what: "localqueues", version: kueue.SchemeGroupVersion, namespaced: true,
		object: &kueue.LocalQueue{}, list: func() client.ObjectList { return &kueue.LocalQueueList{} }, read: readAll[kueue.LocalQueue],
		show: func(o client.Object) func(*State) {
			key, queue := keyOf(o), string(o.(*kueue.LocalQueue).Spec.ClusterQueue)
			return func(s *State) { s.setLocal(key, queue) }
		},
		drop: func(s *State, key string) { s.setLocal(key, "") },
	},
	{
		what: "workloads", version: kueue.SchemeGroupVersion, namespaced: true,
		object: &kueue.Workload{}, list: func() client.ObjectList { return &kueue.WorkloadList{} }, read: readWorkload,
		show: func(o client.Object) func(*State) {
			job := jobOf(o.(*kueue.Workload))
			return func(s *State) { s.setJob(job) }
		},
		drop: func(s *State, key string) { s.dropJob(key) },
	},
	{
		what: "pods", version: corev1.SchemeGroupVersion, namespaced: true, selector: kueuelabels.PodSet,
		object: podMetadata(), list: podMetadataList, read: readPodMetadata, accept: ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		show: func(o client.Object) func(*State) {
			pod, owner := keyOf(o), ownerOf(o.(*metav1.PartialObjectMetadata))
			return func(s *State) { s.setPod(pod, owner) }
		},
		drop: func(s *State, key string) { s.dropPod(key) },
	},
}

func podMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
}

func podMetadataList() client.ObjectList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
}

func keyOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// allowedEvery is how often the right to what is watched, or was denied, is asked for: roles change.
const allowedEvery = time.Minute

// follow watches a source until the context ends: in all namespaces, or where that is denied in
// those given. settled is called once it is known, or known not to be readable.
func (src *source) follow(ctx context.Context, c *cluster.Client, s *State, namespaces []string, settled func()) {
	for ctx.Err() == nil {
		scopes := []string{metav1.NamespaceAll}
		err := src.try(ctx, c, metav1.NamespaceAll)
		if apierrors.IsForbidden(err) && src.namespaced && len(namespaces) > 0 {
			src.problem(s, fmt.Errorf("%w; only %s is shown", err, strings.Join(namespaces, ", ")), "")
			scopes, err = nil, nil
			for _, namespace := range namespaces {
				if err = src.try(ctx, c, namespace); err == nil {
					scopes = append(scopes, namespace)
				} else {
					src.problem(s, err, namespace)
				}
			}
		}
		if err != nil && len(scopes) < 2 {
			src.problem(s, err, "")
			settled()
			select {
			case <-ctx.Done():
			case <-time.After(s.allowedEvery):
			}
			continue
		}
		src.run(ctx, c, s, scopes, settled)
	}
}

// try one small list: it says whether a watch may work.
func (src *source) try(ctx context.Context, c *cluster.Client, namespace string) error {
	return c.List(ctx, src.list(), client.InNamespace(namespace), client.Limit(1))
}

// run watches in namespaces until the context ends, or one of them may not be read any more: what was seen is forgotten then.
// A watch outlives the right to it by an hour, so the right is asked for from time to time.
func (src *source) run(ctx context.Context, c *cluster.Client, s *State, scopes []string, settled func()) {
	watching, stop := context.WithCancel(ctx)
	var reflectors sync.WaitGroup
	var sinks []*sink
	waiting := make(chan struct{}, len(scopes))
	for _, namespace := range scopes {
		sink := &sink{source: src, state: s, namespace: namespace, keys: map[string]struct{}{}, filled: func() { waiting <- struct{}{} }}
		sinks = append(sinks, sink)
		quiet := logr.Discard()
		reflector := cache.NewReflectorWithOptions(src.listWatch(c, s, namespace), &seen{}, sink, cache.ReflectorOptions{Name: src.what, Logger: &quiet})
		reflectors.Go(func() { reflector.RunWithContext(watching) })
	}
	for range scopes {
		select {
		case <-waiting:
		case <-ctx.Done():
		case <-time.After(s.allowedEvery): // denied since, perhaps
		}
	}
	settled()
	src.whileAllowed(ctx, c, scopes, s.allowedEvery)
	stop()
	reflectors.Wait()
	if ctx.Err() != nil {
		return // the session is over, and its state with it
	}
	for _, sink := range sinks {
		_ = sink.Replace(nil, "")
	}
}

// whileAllowed returns when the context ends or a namespace may not be read any more.
func (src *source) whileAllowed(ctx context.Context, c *cluster.Client, scopes []string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, namespace := range scopes {
			if err := src.try(ctx, c, namespace); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				return
			}
		}
	}
}

func (src *source) listWatch(c *cluster.Client, s *State, namespace string) cache.ListerWatcher {
	note := func(err error) {
		switch {
		case err == nil:
			src.problem(s, nil, namespace)
		case !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInvalid(err) && !errors.Is(err, context.Canceled):
			src.problem(s, err, namespace)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := src.list()
			raw.LabelSelector = src.selector
			err := c.List(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &raw})
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			raw.LabelSelector = src.selector
			w, err := stream.Watch(ctx, src.request(c, namespace), raw, src.decode)
			note(err)
			return w, err
		},
	}
}

// request of this kind's objects as JSON.
func (src *source) request(c *cluster.Client, namespace string) *rest.Request {
	under := "/apis/" + src.version.String()
	if src.version.Group == "" {
		under = "/api/" + src.version.Version
	}
	return c.Core.CoreV1().RESTClient().Get().AbsPath(under).NamespaceIfScoped(namespace, namespace != metav1.NamespaceAll).
		Resource(src.what).SetHeader("Accept", runtime.ContentTypeJSON+src.accept)
}

// seen is what is left of an object once it was read: where it belongs, and its record.
type seen struct {
	metav1.PartialObjectMetadata
	put func(*State)
}

func (src *source) decode(data []byte) (runtime.Object, error) {
	object, err := src.read(data)
	if err != nil {
		return nil, err
	}
	return src.seen(object)
}

// seen of an object of this kind, or of a bookmark, which has no name.
func (src *source) seen(object any) (*seen, error) {
	if known, ok := object.(*seen); ok {
		return known, nil
	}
	o, ok := object.(client.Object)
	if !ok || reflect.TypeOf(o) != reflect.TypeOf(src.object) {
		return nil, fmt.Errorf("%s: a %s is no %s", src.what, reflect.TypeOf(object), reflect.TypeOf(src.object))
	}
	found := &seen{put: func(*State) {}}
	found.Name, found.Namespace, found.ResourceVersion = o.GetName(), o.GetNamespace(), o.GetResourceVersion()
	if found.Name == "" {
		found.Annotations = o.GetAnnotations()
		return found, nil
	}
	found.put = src.show(o)
	return found, nil
}

// sink is the store of a reflector: it has the keys of what is there, no objects.
type sink struct {
	*source
	state     *State
	namespace string
	keys      map[string]struct{}
	filled    func()
}

func (k *sink) Add(object any) error    { return k.change(object, false) }
func (k *sink) Update(object any) error { return k.change(object, false) }
func (k *sink) Delete(object any) error { return k.change(object, true) }
func (k *sink) Resync() error           { return nil }

func (k *sink) change(object any, gone bool) error {
	o, err := k.seen(object)
	if err != nil {
		return err
	}
	k.state.mu.Lock()
	defer k.state.mu.Unlock()
	if gone {
		delete(k.keys, keyOf(o))
		k.drop(k.state, keyOf(o))
		return nil
	}
	k.keys[keyOf(o)] = struct{}{}
	o.put(k.state)
	return nil
}

// Replace is called with everything there is.
func (k *sink) Replace(list []any, _ string) error {
	all := make([]*seen, len(list))
	for i, object := range list {
		var err error
		if all[i], err = k.seen(object); err != nil {
			return err
		}
	}
	k.state.mu.Lock()
	now := make(map[string]struct{}, len(all))
	for _, o := range all {
		now[keyOf(o)] = struct{}{}
		o.put(k.state)
	}
	for key := range k.keys {
		if _, there := now[key]; !there {
			k.drop(k.state, key)
		}
	}
	k.keys = now
	k.state.mu.Unlock()
	if k.filled != nil {
		k.filled()
		k.filled = nil
	}
	return nil
}

// problem of a source that the page tells of.
func (src *source) problem(s *State, err error, namespace string) {
	if !src.quiet {
		s.problem(src.what, err, namespace)
	}
}

// problem notes that a kind cannot be read, or, without an error, that it can.
func (s *State) problem(what string, err error, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := what
	if namespace != "" {
		key += "/" + namespace
	}
	if err == nil || apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // a cluster without GPU objects is no problem
		delete(s.problems, key)
	} else {
		s.problems[key] = problemRecord{What: key, Denied: apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err), Message: err.Error()}
	}
	s.mark(kindProblems, key)
	if what == "nodes" {
		for name := range s.nodes {
			s.mark(kindNodes, name)
		}
	}
}

// follow all sources until the context ends, or those of some names; ready is closed once each has said something.
func (s *State) follow(ctx context.Context, c *cluster.Client, namespaces []string, only ...string) (ready <-chan struct{}) {
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	followed := slices.DeleteFunc(slices.Clone(sources), func(src source) bool { return len(only) > 0 && !slices.Contains(only, src.what) })
	settled := make(chan struct{}, len(followed))
	for i := range followed {
		done := false
		go followed[i].follow(ctx, c, s, namespaces, func() {
			if !done {
				done = true
				settled <- struct{}{}
			}
		})
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		for range followed {
			select {
			case <-settled:
			case <-ctx.Done():
				return
			}
		}
	}()
	return all
}
