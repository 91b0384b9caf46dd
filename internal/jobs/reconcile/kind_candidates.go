package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// candidate is a row that might be used, and why it can or cannot be.
type candidate struct {
	kind   *kinds.Kind
	object *v1alpha1.JobKind // of a declared one
	crd    *apiextensionsv1.CustomResourceDefinition

	// notYetServed: its CRD is installed, but not yet known to discovery.
	notYetServed    bool
	reason, message string
}

func (r *registry) candidates(ctx context.Context) ([]*candidate, error) {
	var out []*candidate
	for _, kind := range r.fixed {
		out = append(out, &candidate{kind: kind})
	}
	if r.withoutJobKinds {
		return out, nil
	}
	list := &v1alpha1.JobKindList{}
	if err := r.mgr.GetClient().List(ctx, list); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.JobKind) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		c := &candidate{object: &list.Items[i]}
		kind, err := kinds.Compile(c.object.Name, c.object.Spec)
		c.kind = kind
		if err != nil {
			c.reason, c.message = v1alpha1.ReasonInvalid, err.Error()
		}
		out = append(out, c)
	}
	return out, nil
}

// check finds out whether a row can be used in this cluster.
func (r *registry) check(ctx context.Context, c *candidate) error {
	c.reason, c.message = v1alpha1.ReasonReady, "Jobs of this kind are queued"
	if !strings.Contains(c.kind.GVK.Group, ".") {
		return nil // a kind of Kubernetes itself
	}
	crd, err := r.crd(ctx, c.kind.Spec.Resource+"."+c.kind.GVK.Group)
	if err != nil {
		return err
	}
	if crd != nil && serves(crd, c.kind.GVK.Version) {
		// A CRD is established a moment before discovery knows it.
		if _, err := r.mgr.GetRESTMapper().RESTMapping(c.kind.GVK.GroupKind(), c.kind.GVK.Version); apimeta.IsNoMatchError(err) {
			c.notYetServed = true
		} else if err != nil {
			return err
		}
	}
	if crd == nil || c.notYetServed || !serves(crd, c.kind.GVK.Version) {
		c.reason, c.message = v1alpha1.ReasonNotInstalled, fmt.Sprintf("The cluster does not serve %s of %s", c.kind.Spec.Resource, c.kind.GVK.GroupVersion())
		return nil
	}
	c.crd = crd
	if c.object == nil && slices.Contains(kinds.Table(), c.kind) {
		return nil // the table is tested; older CRDs may lack some of the fields
	}
	if err := c.kind.Check(crd); err != nil {
		c.reason, c.message = v1alpha1.ReasonInvalid, err.Error()
		return nil
	}
	return r.checkAccess(ctx, c)
}

// crd reads a CRD again only when it changed: schemas are big.
func (r *registry) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(crdKind)
	err := r.mgr.GetClient().Get(ctx, types.NamespacedName{Name: name}, meta)
	if apierrors.IsNotFound(err) {
		delete(r.crds, name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if known := r.crds[name]; known != nil && known.ResourceVersion == meta.ResourceVersion {
		return known, nil
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err = r.mgr.GetAPIReader().Get(ctx, types.NamespacedName{Name: name}, crd)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	r.crds[name] = crd
	return crd, nil
}

func serves(crd *apiextensionsv1.CustomResourceDefinition, version string) bool {
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	return established && crd.DeletionTimestamp == nil && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

// checkAccess checks that our roles allow what a declared kind needs. A watch that is forbidden
// would only fill the log.
func (r *registry) checkAccess(ctx context.Context, c *candidate) error {
	for _, verb := range []string{"list", "watch", "patch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: c.kind.GVK.Group, Resource: c.kind.Spec.Resource, Verb: verb},
		}}
		if err := r.mgr.GetClient().Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			c.reason = v1alpha1.ReasonForbidden
			c.message = fmt.Sprintf("elastic-queue may not %s %s.%s: grant it in a ClusterRole with the label %s",
				verb, c.kind.Spec.Resource, c.kind.GVK.Group, AggregateLabel)
			return nil
		}
	}
	return nil
}

// AggregateLabel on a ClusterRole adds its rules to the role of elastic-queue.
const AggregateLabel = "elasticai.io/aggregate-to-queue"

// chooseVersions leaves one row for each kind: where several versions are served, the one in which
// objects are stored, otherwise the first.
func chooseVersions(candidates []*candidate) {
	chosen := map[schema.GroupKind]*candidate{}
	for _, c := range candidates {
		if c.reason != v1alpha1.ReasonReady {
			continue
		}
		before := chosen[c.kind.GVK.GroupKind()]
		switch {
		case before == nil:
		case c.stored() && !before.stored() && c.object == nil:
			before.supersededBy(c)
		default:
			c.supersededBy(before)
			continue
		}
		chosen[c.kind.GVK.GroupKind()] = c
	}
}

func (c *candidate) supersededBy(by *candidate) {
	c.reason, c.message = v1alpha1.ReasonTaken, fmt.Sprintf("%s describes %s already", by.kind.Name, by.kind.GVK.GroupKind())
}

func (c *candidate) stored() bool {
	return c.crd == nil || slices.ContainsFunc(c.crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Storage && v.Name == c.kind.GVK.Version
	})
}

func (c *candidate) ready() bool { return c.reason == v1alpha1.ReasonReady }

func (c *candidate) uid() types.UID {
	if c.crd == nil {
		return ""
	}
	return c.crd.UID
}
