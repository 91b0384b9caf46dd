package queue

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// kinds are those the loop watches.
func (s *Shell) kinds() ([]client.Object, error) {
	kinds := []client.Object{
		&corev1.Namespace{}, &kueue.ResourceFlavor{}, &kueue.Cohort{}, &kueue.ClusterQueue{},
		&kueue.LocalQueue{}, &kueue.Workload{}, &kueue.AdmissionCheck{}, &kueue.Topology{},
		&corev1.LimitRange{}, &nodev1.RuntimeClass{},
	}
	if s.servesPolicies() {
		kinds = append(kinds, &queuepolicy.QueuePolicy{})
	}
	if s.budgets.unserved = !s.servesAccounts(); !s.budgets.unserved {
		kinds = append(kinds, &queuepolicy.BudgetAccount{})
	}
	if s.servesKind(cloud.GroupVersion.WithKind("CloudOffer")) {
		kinds = append(kinds, &cloud.CloudOffer{})
	}
	if s.options.Placer != nil {
		kinds = append(kinds, s.placerKinds()...)
	}
	if s.serves("ElasticGPUClaim") {
		kinds = append(kinds, &egpu.ElasticGPUClaim{})
	}
	if s.serves("ElasticGPUClass") {
		kinds = append(kinds, &egpu.ElasticGPUClass{})
	}
	more, err := s.deviceKinds()
	return append(kinds, more...), err
}

// placerKinds are those the placer needs. A cluster without GPU objects has its cards in the nodes'
// labels.
func (s *Shell) placerKinds() []client.Object {
	kinds := []client.Object{&corev1.Node{}, &corev1.Pod{}}
	if !s.serves("GPU") {
		s.options.Log.Info("this cluster has no GPU objects: cards are read from the nodes' labels")
		return kinds
	}
	return append(kinds, &egpu.GPU{})
}

// serves says that the cluster has a kind of elasticgpu.io.
func (s *Shell) serves(kind string) bool { return s.servesKind(egpu.GroupVersion.WithKind(kind)) }

func (s *Shell) servesKind(kind schema.GroupVersionKind) bool {
	_, err := s.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil
}

// deviceKinds are those that say how devices count. An old cluster does not have them.
func (s *Shell) deviceKinds() ([]client.Object, error) {
	if s.options.Devices == nil {
		return nil, nil
	}
	kind := resourceapi.SchemeGroupVersion.WithKind("DeviceClass")
	_, err := s.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if apimeta.IsNoMatchError(err) {
		s.options.Log.Info("this cluster has no ResourceClaims: there are no devices to count")
		return nil, nil
	}
	return s.options.Devices.Kinds(), err
}

// servesAccounts says that the cluster has BudgetAccounts.
func (s *Shell) servesAccounts() bool {
	_, err := s.client.RESTMapper().RESTMapping(queuepolicy.GroupVersion.WithKind("BudgetAccount").GroupKind(), queuepolicy.GroupVersion.Version)
	if err != nil {
		s.options.Log.Info("this cluster has no BudgetAccounts: their CRD is not installed, and budgets do not count")
	}
	return err == nil
}

// servesPolicies says that the cluster has QueuePolicies. One that was upgraded in the wrong order does not.
func (s *Shell) servesPolicies() bool {
	_, err := s.client.RESTMapper().RESTMapping(queuepolicy.GroupVersion.WithKind("QueuePolicy").GroupKind(), queuepolicy.GroupVersion.Version)
	if err != nil {
		s.options.Log.Info("this cluster has no QueuePolicies: their CRD is not installed")
	}
	return err == nil
}
