package memapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is what the watches of one program have delivered so far.
type Cache struct {
	cache.Cache // what the programs do not use is missing
	server      *Server
	mu          sync.Mutex
	watches     map[schema.GroupKind]*watch
	byName      []*watch
	indexes     map[string]func(client.Object) []string
}

// watch of one kind, at some position of its log.
type watch struct {
	cache.Informer
	kind     *kindLog
	at       int // events delivered
	store    map[client.ObjectKey]*Version
	handlers []toolscache.ResourceEventHandler
}

// NewCache lists the kinds. Behind says how many changes of a kind its list does not have yet.
func NewCache(server *Server, behind func(kind string, changes int) int, kinds ...client.Object) (*Cache, error) {
	c := &Cache{server: server, watches: map[schema.GroupKind]*watch{}, indexes: map[string]func(client.Object) []string{}}
	for _, kind := range kinds {
		k, err := server.kindOf(kind)
		if err != nil {
			return nil, err
		}
		at := len(k.events)
		if lag := min(behind(k.gvk.Kind, at), at); lag > 0 {
			at -= lag
		}
		w := &watch{kind: k, at: at, store: k.asOf(at)}
		c.watches[k.gvk.GroupKind()] = w
		c.byName = append(c.byName, w)
	}
	slices.SortFunc(c.byName, func(a, b *watch) int { return strings.Compare(a.kind.gvk.Kind, b.kind.gvk.Kind) })
	return c, nil
}

// asOf is the state after some events.
func (k *kindLog) asOf(n int) map[client.ObjectKey]*Version {
	if n == len(k.events) {
		return maps.Clone(k.objects)
	}
	state := map[client.ObjectKey]*Version{}
	for _, e := range k.events[:n] {
		if e.deleted {
			delete(state, e.object.Key)
		} else {
			state[e.object.Key] = e.object
		}
	}
	return state
}

// Behind are the kinds whose watches have changes to deliver.
func (c *Cache) Behind() []string {
	var kinds []string
	for _, w := range c.byName {
		if w.at < len(w.kind.events) {
			kinds = append(kinds, w.kind.gvk.Kind)
		}
	}
	return kinds
}

// Kinds that are watched.
func (c *Cache) Kinds() []string {
	var kinds []string
	for _, w := range c.byName {
		kinds = append(kinds, w.kind.gvk.Kind)
	}
	return kinds
}

func (c *Cache) watchOf(kind string) *watch {
	for gk, w := range c.watches {
		if gk.Kind == kind {
			return w
		}
	}
	return nil
}

// Deliver the next change of a kind.
func (c *Cache) Deliver(kind string) bool {
	w := c.watchOf(kind)
	if w == nil || w.at == len(w.kind.events) {
		return false
	}
	e := w.kind.events[w.at]
	w.at++
	if e.deleted {
		c.set(w, e.object.Key, nil)
		w.notify(func(h toolscache.ResourceEventHandler) { h.OnDelete(e.object.Typed()) })
		return true
	}
	was := c.set(w, e.object.Key, e.object)
	w.changed(was, e.object)
	return true
}

// Relist is what a reflector does whose watch broke: it lists, and reports what it finds. What happened
// in between is not seen, what did not change is reported again, and of what is gone only the last
// known state is left.
func (c *Cache) Relist(kind string) bool {
	w := c.watchOf(kind)
	if w == nil {
		return false
	}
	w.at = len(w.kind.events)
	now := w.kind.asOf(w.at)
	before := w.store
	c.mu.Lock()
	w.store = now
	c.mu.Unlock()
	for _, v := range sorted(now) {
		w.changed(before[v.Key], v)
	}
	for _, v := range sorted(before) {
		if now[v.Key] == nil {
			gone := toolscache.DeletedFinalStateUnknown{Key: v.Key.String(), Obj: v.Typed()}
			w.notify(func(h toolscache.ResourceEventHandler) { h.OnDelete(gone) })
		}
	}
	return true
}

func (c *Cache) set(w *watch, key client.ObjectKey, v *Version) (was *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = w.store[key]
	if v == nil {
		delete(w.store, key)
	} else {
		w.store[key] = v
	}
	return was
}

func (w *watch) changed(was, now *Version) {
	w.notify(func(h toolscache.ResourceEventHandler) {
		if was == nil {
			h.OnAdd(now.Typed(), false)
		} else {
			h.OnUpdate(was.Typed(), now.Typed())
		}
	})
}

func (w *watch) notify(f func(toolscache.ResourceEventHandler)) {
	for _, h := range w.handlers {
		f(h)
	}
}

// GetInformer implements cache.Cache.
func (c *Cache) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	k, err := c.server.kindOf(obj)
	if err != nil {
		return nil, err
	}
	if w := c.watches[k.gvk.GroupKind()]; w != nil {
		return w, nil
	}
	return nil, fmt.Errorf("memapi: this program does not watch %s", k.gvk.Kind)
}

// AddEventHandler implements cache.Informer.
func (w *watch) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	for _, v := range sorted(w.store) {
		h.OnAdd(v.Typed(), true)
	}
	w.handlers = append(w.handlers, h)
	return registration{}, nil
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// IndexField implements cache.Cache.
func (c *Cache) IndexField(_ context.Context, _ client.Object, field string, extract client.IndexerFunc) error {
	c.indexes[field] = extract
	return nil
}

// Get implements cache.Cache.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	k, err := c.server.kindOf(obj)
	if err != nil {
		return err
	}
	w := c.watches[k.gvk.GroupKind()]
	if w == nil {
		return fmt.Errorf("memapi: this program does not watch %s", k.gvk.Kind)
	}
	c.mu.Lock()
	v := w.store[key]
	c.mu.Unlock()
	if v == nil {
		return apierrors.NewNotFound(k.resource(), key.Name)
	}
	return into(v, obj)
}

// List implements cache.Cache.
func (c *Cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k, err := c.server.kindOf(list)
	if err != nil {
		return err
	}
	w := c.watches[k.gvk.GroupKind()]
	if w == nil {
		return fmt.Errorf("memapi: this program does not watch %s", k.gvk.Kind)
	}
	options := &client.ListOptions{}
	options.ApplyOptions(opts)
	c.mu.Lock()
	found := sorted(w.store)
	c.mu.Unlock()
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		for _, r := range options.FieldSelector.Requirements() {
			index := c.indexes[r.Field]
			if index == nil {
				return fmt.Errorf("memapi: there is no index %s", r.Field)
			}
			found = slices.DeleteFunc(found, func(v *Version) bool { return !slices.Contains(index(v.Typed()), r.Value) })
		}
	}
	return fill(found, list, opts)
}

// fill a list with the versions that its options select.
func fill(found []*Version, list client.ObjectList, opts []client.ListOption) error {
	options := &client.ListOptions{}
	options.ApplyOptions(opts)
	var items []runtime.Object
	for _, v := range found {
		if options.Namespace != "" && v.Key.Namespace != options.Namespace {
			continue
		}
		if options.LabelSelector != nil && !options.LabelSelector.Matches(labelsOf(v)) {
			continue
		}
		switch list.(type) {
		case *metav1.PartialObjectMetadataList:
			m := &metav1.PartialObjectMetadata{}
			if err := into(v, m); err != nil {
				return err
			}
			m.Namespace, m.Name = v.Key.Namespace, v.Key.Name
			items = append(items, m)
		case *unstructured.UnstructuredList:
			items = append(items, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(v.Content)})
		default:
			items = append(items, v.Typed().DeepCopyObject())
		}
	}
	if items == nil {
		return nil
	}
	return meta.SetList(list, items)
}

type labelSet map[string]string

func (l labelSet) Has(key string) bool                   { _, has := l[key]; return has }
func (l labelSet) Get(key string) string                 { return l[key] }
func (l labelSet) Lookup(key string) (v string, ok bool) { v, ok = l[key]; return v, ok }

func labelsOf(v *Version) labelSet {
	return (&unstructured.Unstructured{Object: v.Content}).GetLabels()
}
