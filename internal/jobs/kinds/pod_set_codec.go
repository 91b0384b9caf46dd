package kinds

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shape reads and writes the pod sets of a kind whose pods cannot be found by
// paths alone.
type podSetCodec interface {
	podSets(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) ([]kueue.PodSet, error)
	// lay writes what an admission adds to the pods; nil takes it away.
	setPodSetInfos(obj *unstructured.Unstructured, base []kueue.PodSet, additions []PodSetInfo) error
	// whileSuspended says the kind's API wants that written before the job is
	// started, not with it.
	patchesWhileSuspended() bool
}

// shapes are the kinds whose pods cannot be found by paths alone.
var codecs = map[string]podSetCodec{
	"trainer.kubeflow.org/trainjob":     trainJob{},
	"workload.codeflare.dev/appwrapper": appWrapper{},
}
