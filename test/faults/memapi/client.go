package memapi

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Call is a request on its way to the server.
type Call struct {
	// Name says which: verb, kind and object.
	Name string
	// Read changes nothing.
	Read bool
	// Do has the server answer it. It may be called late, or not at all.
	Do func() error
}

// Gate lets a call through, or fails it, when it chooses to.
type Gate func(ctx context.Context, call *Call) error

// Client of one program.
type Client struct {
	client.Client // what the programs do not use is missing
	server        *Server
	cache         *Cache // where reads come from; nil: the server itself
	gate          Gate
}

// NewClient writes through the gate, and reads from the cache or, if that is nil, through the gate too.
func NewClient(server *Server, cache *Cache, gate Gate) *Client {
	return &Client{server: server, cache: cache, gate: gate}
}

// write sends a call. Its result is read into obj by the caller's goroutine, and only if it came in time.
func (c *Client) write(ctx context.Context, verb string, obj client.Object, do func() (*Version, error)) error {
	gvk, err := apiutil.GVKForObject(obj, c.server.Scheme)
	if err != nil {
		return err
	}
	var result *Version
	call := &Call{Name: fmt.Sprintf("%s %s %s", verb, gvk.Kind, client.ObjectKeyFromObject(obj))}
	call.Do = func() (err error) {
		result, err = do()
		return err
	}
	if err := c.gate(ctx, call); err != nil {
		return err
	}
	if result == nil {
		return nil
	}
	return into(result, obj)
}

// into decodes a version.
func into(v *Version, obj client.Object) error {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		o.Object = runtime.DeepCopyJSON(v.Content)
		return nil
	case *metav1.PartialObjectMetadata:
		m := &unstructured.Unstructured{Object: v.Content}
		o.ResourceVersion, o.Generation, o.UID = m.GetResourceVersion(), m.GetGeneration(), m.GetUID()
		o.DeletionTimestamp, o.Finalizers, o.OwnerReferences = m.GetDeletionTimestamp(), m.GetFinalizers(), m.GetOwnerReferences()
		o.Labels, o.Annotations = m.GetLabels(), m.GetAnnotations()
		return nil
	}
	is := v.Typed().DeepCopyObject()
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(is).Elem())
	return nil
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	sent := obj.DeepCopyObject().(client.Object)
	return c.write(ctx, "create", obj, func() (*Version, error) { return c.server.Create(sent) })
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, obj client.Object, _ ...client.UpdateOption) error {
	sent := obj.DeepCopyObject().(client.Object)
	return c.write(ctx, "update", obj, func() (*Version, error) { return c.server.Update(sent, false) })
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	options := &client.PatchOptions{}
	options.ApplyOptions(opts)
	return c.patch(ctx, "patch", obj, patch, options.FieldManager, false)
}

func (c *Client) patch(ctx context.Context, verb string, obj client.Object, patch client.Patch, manager string, status bool) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	sent := obj.DeepCopyObject().(client.Object)
	return c.write(ctx, verb, obj, func() (*Version, error) { return c.server.Patch(sent, patch.Type(), data, manager, status) })
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	options := &client.DeleteOptions{}
	options.ApplyOptions(opts)
	sent := obj.DeepCopyObject().(client.Object)
	return c.write(ctx, "delete", obj, func() (*Version, error) { return nil, c.server.Delete(sent, options.Preconditions) })
}

// Get implements client.Client.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if c.cache != nil {
		return c.cache.Get(ctx, key, obj)
	}
	k, err := c.server.kindOf(obj)
	if err != nil {
		return err
	}
	var found *Version
	err = c.gate(ctx, &Call{Name: fmt.Sprintf("get %s %s", k.gvk.Kind, key), Read: true, Do: func() (err error) {
		found, err = k.get(key)
		return err
	}})
	if err != nil {
		return err
	}
	return into(found, obj)
}

// List implements client.Client.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if c.cache != nil {
		return c.cache.List(ctx, list, opts...)
	}
	k, err := c.server.kindOf(list)
	if err != nil {
		return err
	}
	var found []*Version
	var version int64
	err = c.gate(ctx, &Call{Name: "list " + k.gvk.Kind, Read: true, Do: func() error {
		found, version = k.sorted(), c.server.Version()
		return nil
	}})
	if err != nil {
		return err
	}
	list.SetResourceVersion(strconv.FormatInt(version, 10))
	return fill(found, list, opts)
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return &subresource{client: c, name: "status"} }

// SubResource implements client.Client.
func (c *Client) SubResource(name string) client.SubResourceClient {
	return &subresource{client: c, name: name}
}

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return c.server.Scheme }

// RESTMapper implements client.Client.
func (c *Client) RESTMapper() meta.RESTMapper { return c.server.Mapper }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.server.Scheme)
}

// IsObjectNamespaced implements client.Client.
func (c *Client) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, c.server.Scheme, c.server.Mapper)
}

type subresource struct {
	client.SubResourceClient
	client *Client
	name   string
}

func (s *subresource) Create(ctx context.Context, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
	b, ok := sub.(*corev1.Binding)
	if !ok || s.name != "binding" {
		return errors.New("memapi: of subresources only bindings are created")
	}
	sent, binding := obj.DeepCopyObject().(client.Object), b.DeepCopy()
	return s.client.write(ctx, "bind", obj, func() (*Version, error) { return nil, s.client.server.Bind(sent, binding) })
}

func (s *subresource) Update(ctx context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	sent := obj.DeepCopyObject().(client.Object)
	return s.client.write(ctx, "update-status", obj, func() (*Version, error) { return s.client.server.Update(sent, true) })
}

func (s *subresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	options := &client.SubResourcePatchOptions{}
	options.ApplyOptions(opts)
	return s.client.patch(ctx, "patch-status", obj, patch, options.FieldManager, true)
}
