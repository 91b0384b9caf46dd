package stream

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Workloads is a ListerWatcher of all Workloads that lists with another one, and watches by itself.
func Workloads(config *rest.Config, scheme *runtime.Scheme, lister cache.ListerWatcher) (cache.ListerWatcher, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &kueue.SchemeGroupVersion, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client that watches workloads: %w", err)
	}
	return &cache.ListWatch{
		ListWithContextFunc: cache.ToListerWatcherWithContext(lister).ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return Watch(ctx, client.Get().Resource("workloads"), options, decodeWorkload)
		},
	}, nil
}

// lean is a Workload without its managed fields.
type lean struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        meta                 `json:"metadata"`
	Spec            kueue.WorkloadSpec   `json:"spec"`
	Status          kueue.WorkloadStatus `json:"status"`
}

// meta is an object's metadata without its managed fields.
type meta struct {
	Name                       string                  `json:"name"`
	GenerateName               string                  `json:"generateName"`
	Namespace                  string                  `json:"namespace"`
	UID                        types.UID               `json:"uid"`
	ResourceVersion            string                  `json:"resourceVersion"`
	Generation                 int64                   `json:"generation"`
	CreationTimestamp          metav1.Time             `json:"creationTimestamp"`
	DeletionTimestamp          *metav1.Time            `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64                  `json:"deletionGracePeriodSeconds"`
	Labels                     map[string]string       `json:"labels"`
	Annotations                map[string]string       `json:"annotations"`
	OwnerReferences            []metav1.OwnerReference `json:"ownerReferences"`
	Finalizers                 []string                `json:"finalizers"`
}

// Object is the metadata as objects have it.
func (m *meta) object() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Labels: m.Labels, Annotations: m.Annotations,
		OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers,
	}
}

func decodeWorkload(data []byte) (runtime.Object, error) {
	var l lean
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &l); err != nil {
		return nil, err
	}
	return &kueue.Workload{TypeMeta: l.TypeMeta, ObjectMeta: l.Metadata.object(), Spec: l.Spec, Status: l.Status}, nil
}
