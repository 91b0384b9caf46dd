package jobs

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // a short, stable name, not a secret
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Labels, annotations and names people and Kueue's clients put on objects.
const (
	QueueNameLabel     = "kueue.x-k8s.io/queue-name" // also read as an annotation, as old jobs carry it
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	PrebuiltLabel      = "kueue.x-k8s.io/prebuilt-workload-name" // also an annotation
	MaxExecTimeLabel   = "kueue.x-k8s.io/max-exec-time-seconds"
	JobUIDLabel        = "kueue.x-k8s.io/job-uid"
	ElasticAnnotation  = "kueue.x-k8s.io/elastic-job"
	ProvReqPrefix      = "provreq.kueue.x-k8s.io/"

	ManagedLabel        = "kueue.x-k8s.io/managed" // also the pods' finalizer
	AdmissionGate       = "kueue.x-k8s.io/admission"
	ParentAnnotation    = "kueue.x-k8s.io/pod-suspending-parent"
	GroupNameLabel      = "kueue.x-k8s.io/pod-group-name"
	GroupTotal          = "kueue.x-k8s.io/pod-group-total-count"
	GroupFastAdmission  = "kueue.x-k8s.io/pod-group-fast-admission"
	GroupServing        = "kueue.x-k8s.io/pod-group-serving"
	RoleAnnotation      = "kueue.x-k8s.io/role-hash"
	RetriableAnnotation = "kueue.x-k8s.io/retriable-in-group"
	IsGroupAnnotation   = workload.GroupAnnotation

	// On the pods of a started job.
	PodSetLabel       = "kueue.x-k8s.io/podset"
	LocalQueueLabel   = "kueue.x-k8s.io/local-queue-name"
	ClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name"

	defaultQueue = "default"
)

// job is what the controller wants of a job, whatever holds it back: a flag of
// its own (object), or gates on its pods (podGroup).
type job interface {
	meta() client.Object
	row() *Kind
	workloadName() string
	// own makes the workload go when the job does.
	own(wl *kueue.Workload)

	podSets(ctx context.Context, c client.Reader) ([]kueue.PodSet, error)
	// held: nothing of it may run. started: nothing of it is held back. Pods that
	// are replaced one by one can be neither.
	held() bool
	started() bool
	active() (bool, error)
	finished() (outcome, error)
	ready(wl *kueue.Workload) (bool, error)
	reclaimable(wl *kueue.Workload) ([]kueue.ReclaimablePod, error)

	start(ctx context.Context, c client.Client, wl *kueue.Workload, additions []podSetInfo) error
	stop(ctx context.Context, c client.Client, why string) error
	// restore takes away what start added, once nothing runs.
	restore(ctx context.Context, c client.Client, wl *kueue.Workload) error
	// settle does what is left to do once the workload is as it should be.
	settle(ctx context.Context, c client.Client, wl *kueue.Workload) error
}

// outcome is how a job ended, and its own words about it.
type outcome struct {
	ended           bool
	reason, message string
}

func queueName(obj client.Object) kueue.LocalQueueName {
	return kueue.LocalQueueName(cmp.Or(obj.GetLabels()[QueueNameLabel], obj.GetAnnotations()[QueueNameLabel]))
}

// workloadName is readable and the same at every attempt, so that a workload
// is never made twice. The shape of the name is Kueue's.
func workloadName(gvk schema.GroupVersionKind, name string, uid types.UID) string {
	return shortName(strings.ToLower(gvk.Kind)+"-"+name, gvk.Kind, gvk.Group, name, string(uid))
}

// shortName fits a name into a label: the beginning of it and five letters that
// stand for all parts.
func shortName(prefix string, parts ...string) string {
	const most = 63 - 6
	sum := sha1.Sum([]byte(strings.Join(parts, "\n"))) //nolint:gosec // see the import
	return prefix[:min(len(prefix), most)] + "-" + hex.EncodeToString(sum[:])[:5]
}
