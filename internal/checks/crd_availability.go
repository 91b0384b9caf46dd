package checks

import (
	"context"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Availability knows whether the cluster has a kind of another project that checks need, and writes
// whether the checks are active. Workloads and objects of the kind are watched from the moment there
// are both checks and the kind.
type Availability struct {
	Client client.Client
	Cache  cache.Cache

	CRD    string
	Kind   schema.GroupVersionKind
	Object client.Object // of the kind
	// Missing is the condition of checks while the cluster does not have the kind.
	Missing metav1.Condition
	// Problem says what else is wrong with a check; nil: nothing.
	Problem func(context.Context, *kueue.AdmissionCheck) *metav1.Condition

	WatchWorkloads func() error
	WatchObjects   func(context.Context) error

	mu      sync.Mutex
	began   bool      // workloads are watched
	watched types.UID // the CRD of the objects that are watched; "": there is none
}

// Available says whether the cluster has the kind.
func (s *Availability) Available() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched != ""
}

// Reconcile writes whether one check is active.
func (s *Availability) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s.mu.Lock()
	again, err := s.checkCRD(ctx)
	available := s.watched != ""
	s.mu.Unlock()
	if err != nil {
		return ctrl.Result{}, err
	}
	check := &kueue.AdmissionCheck{}
	if err := s.Client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{RequeueAfter: again}, client.IgnoreNotFound(err)
	}
	active := Active()
	if problem := s.Problem(ctx, check); problem != nil {
		active = *problem
	} else if !available {
		active = s.Missing
	}
	return ctrl.Result{RequeueAfter: again}, WriteActive(ctx, s.Client, check, active)
}

// checkCRD finds out whether there are objects to watch, and when to check again: nothing tells
// when a CRD is served. One that is not after a minute lacks the version.
func (s *Availability) checkCRD(ctx context.Context) (again time.Duration, err error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err = s.Client.Get(ctx, types.NamespacedName{Name: s.CRD}, crd)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	exists := err == nil && crd.DeletionTimestamp == nil
	if s.watched != "" && (!exists || s.watched != crd.UID) {
		s.watched = ""
		if err := s.Cache.RemoveInformer(ctx, s.Object); err != nil {
			return 0, err
		}
	}
	if !exists || s.watched != "" {
		return 0, nil
	}
	_, err = s.Client.RESTMapper().RESTMapping(s.Kind.GroupKind(), s.Kind.Version)
	if apimeta.IsNoMatchError(err) {
		if time.Since(crd.CreationTimestamp.Time) < time.Minute {
			return time.Second, nil
		}
		return time.Minute, nil
	}
	if err != nil {
		return 0, err
	}
	if err := s.WatchObjects(ctx); err != nil {
		return 0, err
	}
	s.watched = crd.UID
	if s.began {
		return 0, nil
	}
	s.began = true
	return 0, s.WatchWorkloads()
}
