package memapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Server is the API server. It is for one goroutine at a time.
type Server struct {
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
	// Now is the server's clock: creation and deletion times.
	Now func() time.Time

	version int64
	made    int
	kinds   map[schema.GroupKind]*kindLog
	byName  []*kindLog
	types   map[reflect.Type]*kindLog

	orphans   []client.Object // as of
	orphansAt int64
}

// kindLog has the objects of a kind, and all changes of them in order.
type kindLog struct {
	gvk     schema.GroupVersionKind
	scheme  *runtime.Scheme
	objects map[client.ObjectKey]*Version
	events  []event
	inOrder []*Version // the objects by name; nil: to be sorted again
	whole   bool       // its status is written with the rest
}

type event struct {
	object  *Version
	deleted bool
}

// Version is an object as it was at some time. It never changes.
type Version struct {
	Key     client.ObjectKey
	Content map[string]any
	kind    *kindLog
	uid     string
	owned   map[string]map[string]bool // paths by field manager
	owners  []metav1.OwnerReference
	leaving bool // it is being deleted
	decode  sync.Once
	typed   client.Object
}

// NewServer is empty.
func NewServer(scheme *runtime.Scheme, now func() time.Time, kinds ...client.Object) (*Server, error) {
	s := &Server{Scheme: scheme, Now: now, kinds: map[schema.GroupKind]*kindLog{}, types: map[reflect.Type]*kindLog{}}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, scheme)
		if err != nil {
			return nil, err
		}
		scope := meta.RESTScopeRoot
		if kind.GetNamespace() != "" {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(gvk, scope)
		k := &kindLog{gvk: gvk, scheme: scheme, objects: map[client.ObjectKey]*Version{}}
		s.kinds[gvk.GroupKind()], s.types[reflect.TypeOf(kind)] = k, k
		s.byName = append(s.byName, k)
	}
	slices.SortFunc(s.byName, func(a, b *kindLog) int {
		return strings.Compare(a.gvk.GroupKind().String(), b.gvk.GroupKind().String())
	})
	s.Mapper = mapper
	return s, nil
}

// WriteWhole says that a kind has no status subresource.
func (s *Server) WriteWhole(kind client.Object) { s.types[reflect.TypeOf(kind)].whole = true }

// Version counts all writes that changed something.
func (s *Server) Version() int64 { return s.version }

func (s *Server) kindOf(obj runtime.Object) (*kindLog, error) {
	if k := s.types[reflect.TypeOf(obj)]; k != nil {
		return k, nil
	}
	gvk, err := apiutil.GVKForObject(obj, s.Scheme)
	if err != nil {
		return nil, err
	}
	gk := gvk.GroupKind()
	gk.Kind = strings.TrimSuffix(gk.Kind, "List")
	if k := s.kinds[gk]; k != nil {
		return k, nil
	}
	return nil, &meta.NoKindMatchError{GroupKind: gk}
}

func (k *kindLog) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk.Group, Resource: strings.ToLower(k.gvk.Kind) + "s"}
}

func (k *kindLog) get(key client.ObjectKey) (*Version, error) {
	if v := k.objects[key]; v != nil {
		return v, nil
	}
	return nil, apierrors.NewNotFound(k.resource(), key.Name)
}

// sorted versions, by name.
func sorted(objects map[client.ObjectKey]*Version) []*Version {
	return slices.SortedFunc(maps.Values(objects), func(a, b *Version) int { return strings.Compare(a.Key.String(), b.Key.String()) })
}

// sorted objects as they are now.
func (k *kindLog) sorted() []*Version {
	if k.inOrder == nil {
		k.inOrder = sorted(k.objects)
	}
	return k.inOrder
}

// Objects of a type as they are now, by name. They are shared: do not change them.
func Objects[T client.Object](s *Server) []T {
	var kind T
	k := s.types[reflect.TypeOf(kind)]
	out := make([]T, 0, len(k.objects))
	for _, v := range k.sorted() {
		out = append(out, v.Typed().(T))
	}
	return out
}

// Object of a type as it is now, or nil.
func Object[T client.Object](s *Server, key client.ObjectKey) T {
	var none T
	k := s.types[reflect.TypeOf(none)]
	v := k.objects[key]
	if v == nil {
		return none
	}
	return v.Typed().(T)
}

// Typed is a version as the type that the scheme has for its kind. It is shared: do not change it.
func (v *Version) Typed() client.Object {
	v.decode.Do(func() {
		obj, err := v.kind.scheme.New(v.kind.gvk)
		if err != nil {
			panic(err)
		}
		v.typed = obj.(client.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(v.Content, v.typed); err != nil {
			panic(fmt.Sprintf("%s %s: %v", v.kind.gvk.Kind, v.Key, err))
		}
		v.typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as typed clients decode it
	})
	return v.typed
}

// content of an object as JSON has it.
func content(obj runtime.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return runtime.DeepCopyJSON(u.Object), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// Create an object.
func (s *Server) Create(obj client.Object) (*Version, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(obj)
	if k.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), key.Name)
	}
	now, err := content(obj)
	if err != nil {
		return nil, err
	}
	s.made++
	m := &unstructured.Unstructured{Object: now}
	m.SetGroupVersionKind(k.gvk)
	m.SetUID(types.UID(fmt.Sprintf("uid-%d", s.made)))
	m.SetCreationTimestamp(metav1.NewTime(s.Now().Truncate(time.Second)))
	m.SetGeneration(1)
	return s.store(k, key, now, nil), nil
}

// store makes a version current.
func (s *Server) store(k *kindLog, key client.ObjectKey, now map[string]any, owned map[string]map[string]bool) *Version {
	s.version++
	k.inOrder = nil
	m := &unstructured.Unstructured{Object: now}
	m.SetResourceVersion(strconv.FormatInt(s.version, 10))
	v := &Version{
		Key: key, Content: now, kind: k, uid: string(m.GetUID()), owned: owned,
		owners: m.GetOwnerReferences(), leaving: m.GetDeletionTimestamp() != nil,
	}
	if v.leaving && len(m.GetFinalizers()) == 0 {
		delete(k.objects, key)
		k.events = append(k.events, event{v, true})
		return v
	}
	k.objects[key] = v
	k.events = append(k.events, event{v, false})
	return v
}

// replace the current version, unless nothing differs. Status is written apart from the rest.
func (s *Server) replace(k *kindLog, was *Version, now map[string]any, owned map[string]map[string]bool, status bool) (*Version, error) {
	m := &unstructured.Unstructured{Object: now}
	old := &unstructured.Unstructured{Object: was.Content}
	if rv := m.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() || m.GetUID() != "" && m.GetUID() != old.GetUID() {
		return nil, conflict(k, was.Key)
	}
	if status {
		rest := runtime.DeepCopyJSON(was.Content)
		if value, has := now["status"]; has {
			rest["status"] = value
		} else {
			delete(rest, "status")
		}
		now, m = rest, &unstructured.Unstructured{Object: rest}
	} else {
		if value, has := was.Content["status"]; has && !k.whole {
			now["status"] = value
		} else if !k.whole {
			delete(now, "status")
		}
		m.SetUID(old.GetUID())
		m.SetCreationTimestamp(old.GetCreationTimestamp())
		m.SetDeletionTimestamp(old.GetDeletionTimestamp())
		m.SetGeneration(old.GetGeneration())
		if !reflect.DeepEqual(now["spec"], was.Content["spec"]) {
			m.SetGeneration(old.GetGeneration() + 1)
		}
	}
	m.SetGroupVersionKind(k.gvk)
	m.SetResourceVersion(old.GetResourceVersion())
	if reflect.DeepEqual(now, was.Content) {
		was.owned = owned
		return was, nil
	}
	return s.store(k, was.Key, now, owned), nil
}

func conflict(k *kindLog, key client.ObjectKey) error {
	return apierrors.NewConflict(k.resource(), key.Name, fmt.Errorf("the object has been modified"))
}

// current is an object as it is, among those of its kind.
func (s *Server) current(obj client.Object) (*kindLog, *Version, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return nil, nil, err
	}
	was, err := k.get(client.ObjectKeyFromObject(obj))
	return k, was, err
}

// Update an object, or its status.
func (s *Server) Update(obj client.Object, status bool) (*Version, error) {
	k, was, err := s.current(obj)
	if err != nil {
		return nil, err
	}
	now, err := content(obj)
	if err != nil {
		return nil, err
	}
	return s.replace(k, was, now, was.owned, status)
}

// Delete an object: at once, or when its finalizers are gone.
func (s *Server) Delete(obj client.Object, preconditions *metav1.Preconditions) error {
	k, err := s.kindOf(obj)
	if err != nil {
		return err
	}
	was, err := k.get(client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	old := &unstructured.Unstructured{Object: was.Content}
	if p := preconditions; p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
		return conflict(k, was.Key)
	}
	if old.GetDeletionTimestamp() != nil {
		return nil
	}
	gone := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(was.Content)}
	deleted := metav1.NewTime(s.Now().Truncate(time.Second))
	gone.SetDeletionTimestamp(&deleted)
	gone.SetGeneration(old.GetGeneration() + 1)
	s.store(k, was.Key, gone.Object, was.owned)
	return nil
}

// Orphans are objects whose owner no longer exists: the garbage collector deletes them.
func (s *Server) Orphans() []client.Object {
	if s.orphansAt == s.version {
		return s.orphans
	}
	uids := map[string]bool{}
	for _, k := range s.byName {
		for _, v := range k.objects {
			uids[v.uid] = true
		}
	}
	s.orphans, s.orphansAt = nil, s.version
	for _, k := range s.byName {
		for _, v := range k.sorted() {
			gone := len(v.owners) > 0 && !v.leaving
			for _, owner := range v.owners {
				gone = gone && !uids[string(owner.UID)]
			}
			if gone {
				s.orphans = append(s.orphans, &unstructured.Unstructured{Object: v.Content})
			}
		}
	}
	return s.orphans
}
