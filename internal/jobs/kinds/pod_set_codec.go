package kinds

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podSetCodec reads and writes the pod sets of a kind whose pods cannot be found by paths alone.
type podSetCodec interface {
	podSets(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) ([]kueue.PodSet, error)
	// setPodSetInfos writes what an admission adds to the pods; nil infos remove it.
	setPodSetInfos(obj *unstructured.Unstructured, base []kueue.PodSet, infos []PodSetInfo) error
	// prepare does to a new object what has to be done before an admission can add to it.
	prepare(obj *unstructured.Unstructured) error
	// patchesWhileSuspended: the kind's API requires that to be written before the job is started, not
	// together with it.
	patchesWhileSuspended() bool
}

// progressReader is a codec that also reads how far a job is, which its row cannot say: whether its pods are
// ready, and how many of each set have finished for good.
type progressReader interface {
	progress(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) (ready bool, done map[kueue.PodSetReference]int32, err error)
}

// codecs by the name of the kind.
var codecs = map[string]podSetCodec{
	"trainer.kubeflow.org/trainjob":     trainJob{},
	"workload.codeflare.dev/appwrapper": appWrapper{},
}
