package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the objects.
var GroupVersion = schema.GroupVersion{Group: "elasticgpu.io", Version: "v1alpha1"}

// AddToScheme makes the objects known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&GPU{}, &GPUList{}, &ElasticGPU{}, &ElasticGPUList{},
		&ElasticGPUClaim{}, &ElasticGPUClaimList{}, &ElasticGPUClass{}, &ElasticGPUClassList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
