package kinds

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // a short, stable name, not a secret
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Labels, annotations and names that users and Kueue's clients put on objects.
const (
	QueueNameLabel     = "kueue.x-k8s.io/queue-name" // also read as an annotation, as old jobs carry it
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	PrebuiltLabel      = "kueue.x-k8s.io/prebuilt-workload-name" // also an annotation
	MaxExecTimeLabel   = "kueue.x-k8s.io/max-exec-time-seconds"
	JobUIDLabel        = kueuelabels.JobUID
	ElasticAnnotation  = kueuelabels.ElasticJob

	// On batch Jobs: with how few pods one may start, and that its completions follow.
	MinParallelismAnnotation  = "kueue.x-k8s.io/job-min-parallelism"
	SyncCompletionsAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"

	ProvReqPrefix = kueuelabels.ProvisioningParameterPrefix

	ManagedLabel        = kueuelabels.Managed // also the pods' finalizer
	AdmissionGate       = "kueue.x-k8s.io/admission"
	ParentAnnotation    = "kueue.x-k8s.io/pod-suspending-parent"
	GroupNameLabel      = kueuelabels.PodGroupName
	GroupTotal          = kueuelabels.PodGroupTotal
	GroupFastAdmission  = "kueue.x-k8s.io/pod-group-fast-admission"
	GroupServing        = "kueue.x-k8s.io/pod-group-serving"
	RoleAnnotation      = "kueue.x-k8s.io/role-hash"
	RetriableAnnotation = "kueue.x-k8s.io/retriable-in-group"
	IsGroupAnnotation   = workload.GroupAnnotation

	// On the pods of a started job.
	PodSetLabel       = kueuelabels.PodSet
	LocalQueueLabel   = kueuelabels.LocalQueue
	ClusterQueueLabel = kueuelabels.ClusterQueue

	// StoppedAnnotation names the stop of a job that its controller confirmed, see Object.Restore.
	StoppedAnnotation = "elasticai.io/stopped"

	// DefaultQueue and DefaultPriorityClass are the names of what jobs get that name none.
	DefaultQueue         = "default"
	DefaultPriorityClass = "default"
)

// QueueName is the LocalQueue an object names; "" for none.
func QueueName(obj client.Object) kueue.LocalQueueName {
	return kueue.LocalQueueName(cmp.Or(obj.GetLabels()[QueueNameLabel], obj.GetAnnotations()[QueueNameLabel]))
}

func IsPrebuilt(obj client.Object) bool { return PrebuiltName(obj) != "" }

func SetLabel(obj client.Object, key, value string) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	obj.SetLabels(labels)
}

func SetAnnotation(obj client.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

// WorkloadName is readable, and the same at every attempt, so that no workload is created twice.
// The form of the name is Kueue's.
func WorkloadName(gvk schema.GroupVersionKind, name string, uid types.UID, more ...string) string {
	most := validation.DNS1123SubdomainMaxLength
	if rules().ShortNames {
		most = validation.LabelValueMaxLength
	}
	return nameOf(most, strings.ToLower(gvk.Kind)+"-"+name, append([]string{gvk.Kind, gvk.Group, name, string(uid)}, more...)...)
}

// ShortName fits a name into a label: its beginning, and five letters of a hash of all parts.
func ShortName(prefix string, parts ...string) string {
	return nameOf(validation.LabelValueMaxLength, prefix, parts...)
}

func nameOf(most int, prefix string, parts ...string) string {
	sum := sha1.Sum([]byte(strings.Join(parts, "\n"))) //nolint:gosec // see the import
	return prefix[:min(len(prefix), most-6)] + "-" + hex.EncodeToString(sum[:])[:5]
}
