package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of JobKind.
var GroupVersion = schema.GroupVersion{Group: "elasticai.io", Version: "v1alpha1"}

// AddToScheme makes JobKind known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &JobKind{}, &JobKindList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// JobKind teaches Elastic a kind of job.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.group`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].message`
type JobKind struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   JobKindSpec   `json:"spec"`
	Status JobKindStatus `json:"status,omitempty"`
}

// JobKindList is a list of JobKinds.
//
// +kubebuilder:object:root=true
type JobKindList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobKind `json:"items"`
}

// Active is the condition that says whether jobs of the kind are queued, and
// if not, why.
const Active = "Active"

// Reasons of the Active condition.
const (
	ReasonReady        = "Ready"
	ReasonInvalid      = "Invalid"      // the message names every path and expression that is wrong
	ReasonNotInstalled = "NotInstalled" // the kind's CRD is not installed; nothing has to be restarted when it is
	ReasonForbidden    = "Forbidden"    // elastic-queue may not watch and change objects of the kind
	ReasonTaken        = "Taken"        // another description of the same kind is in use
)

// JobKindStatus says whether the kind is in use.
type JobKindStatus struct {
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// JobKindSpec describes a kind of job.
//
// A path is field names with dots between them, from the object's root:
// "spec.template". A name may end in [*], which stands for every element of a
// list, or in ?, which leaves the path out where the field is absent.
//
// An expression is CEL. It sees the job as "object", and inside podSets the
// list element or map value as "item" and its index or key as "key". A field
// that may be absent is read with a question mark:
// object.?status.?ready.orValue(0). Beside CEL's own functions there are
// sum(list), condition(object, "Type"), which is true when the condition is,
// and conditionMessage(object, "Type").
type JobKindSpec struct {
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// +kubebuilder:validation:MinLength=1
	Version string `json:"version"`
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
	// Resource is the plural name, as in "kubectl get trains".
	//
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`

	// Suspend is the path of the boolean that suspends a job. The pods of a kind
	// without one are gated instead: see Pods.
	Suspend string `json:"suspend,omitempty"`
	// ClearOnStop are status fields to remove when a job is stopped, where its
	// own API would otherwise not let its templates be restored.
	ClearOnStop []string `json:"clearOnStop,omitempty"`

	// PodSets say which pods a job will have, in order.
	PodSets []PodSet `json:"podSets,omitempty"`
	// PriorityClass is an expression for the name of a PriorityClass; where it is
	// empty, the first pod set that names one decides.
	PriorityClass string `json:"priorityClass,omitempty"`

	// Skip is an expression for jobs that are not to be queued.
	Skip string `json:"skip,omitempty"`

	// Validations are what must hold for a job of the kind to be queued, beside
	// what is checked for all kinds; a job for which one does not is refused.
	Validations []Validation `json:"validations,omitempty"`

	// Succeeded and Failed are expressions that become true when a job ends; a
	// kind with neither never ends by itself, like a service. Message is an
	// expression for the job's own message about its end.
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
	Message   string `json:"message,omitempty"`
	// Ready is an expression: all pods are up or done. It also sees "pods", the
	// number of pods admitted.
	Ready string `json:"ready,omitempty"`
	// Active is an expression: pods may still be running. The quota of a stopped
	// job is released when it turns false.
	Active string `json:"active,omitempty"`
	// OnHold is an expression: the job cannot run as it is. It has no quota, and its
	// workload waits, until it turns false.
	OnHold string `json:"onHold,omitempty"`

	// Elastic kinds may be scaled while they run, if the job says so with the
	// annotation kueue.x-k8s.io/elastic-job.
	Elastic bool `json:"elastic,omitempty"`
	// ScaledBy is the object that says how many pods a running elastic job has, where
	// that is not the job itself.
	ScaledBy *ScaledBy `json:"scaledBy,omitempty"`

	// ManagedBy is the path of the field that hands a job to another controller,
	// and Sync are the paths copied back from the cluster that runs it.
	// ManagedByDefault is the field's value, if it has one, where the kind's own
	// operator runs the job. SyncGrows are paths of numbers that never become
	// smaller, even when the job starts again in another cluster.
	ManagedBy        string   `json:"managedBy,omitempty"`
	ManagedByDefault string   `json:"managedByDefault,omitempty"`
	Sync             []string `json:"sync,omitempty"`
	SyncGrows        []string `json:"syncGrows,omitempty"`
	// Forward are paths in the spec that may change while another cluster runs the
	// job: their values are copied to that cluster.
	Forward []string `json:"forward,omitempty"`

	// Pods says how the pods of a kind without Suspend are found and gated.
	Pods *GatedPods `json:"pods,omitempty"`
}

// ScaledBy is an object that a job's operator makes for it, and an autoscaler
// changes. It is of a kind that is built in: its pod sets are those of the job that
// have the same names.
type ScaledBy struct {
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Name is an expression for the object's name; empty while there is none.
	Name string `json:"name"`
	// Writable: the job's operator leaves the number of pods alone that is written there, so that a job with a least and a
	// most number of pods is resized there.
	Writable bool `json:"writable,omitempty"`
}

// Validation is one rule for the jobs of a kind.
type Validation struct {
	// Rule is an expression that is true of a valid job. It also sees "oldObject",
	// the job before a change; null, where it is created.
	Rule string `json:"rule"`
	// FieldPath is the field that the message is about: a path, which may end in the
	// key of a label or an annotation, as in "metadata.annotations[example.com/key]".
	FieldPath string `json:"fieldPath"`
	Message   string `json:"message"`
}

// PodSet says where in a job a pod template is, and how many pods are made from it.
type PodSet struct {
	// Name of the pod set. With Each it is the map's key or the field NameFrom of
	// the element.
	Name string `json:"name,omitempty"`
	// Each is the path of a list or map: one pod set per element, and the paths
	// below start at the element. Order sorts a map's keys: these first.
	Each     string   `json:"each,omitempty"`
	NameFrom string   `json:"nameFrom,omitempty"`
	Order    []string `json:"order,omitempty"`
	// When is an expression: whether the job has the pod set.
	When string `json:"when,omitempty"`

	// Template is the path of the pod template.
	Template string `json:"template,omitempty"`
	// Pod is an expression for the pod template where the object has none: the one
	// its operator would make.
	Pod string `json:"pod,omitempty"`
	// Sidecars is an expression for containers the operator adds to each pod, so
	// that they are counted.
	Sidecars string `json:"sidecars,omitempty"`
	// AtLeast is an expression for requests that the first container counts with at
	// least: the operator runs a pod of that size in its place later.
	AtLeast string `json:"atLeast,omitempty"`
	// Inject are paths for kinds that have these fields outside of the template.
	Inject *Inject `json:"inject,omitempty"`

	// Count is an expression for the number of pods; one, where absent.
	Count string `json:"count,omitempty"`
	// MinCount is an expression: with how few pods the job may be started. SetCount
	// is then where the number is written.
	MinCount string     `json:"minCount,omitempty"`
	SetCount []SetCount `json:"setCount,omitempty"`
	// Reclaimable is an expression for the number of pods that have finished for
	// good.
	Reclaimable string `json:"reclaimable,omitempty"`

	// PodIndexLabel is the label that numbers the pods of the set; SubGroup says
	// how they fall into equal parts.
	PodIndexLabel string    `json:"podIndexLabel,omitempty"`
	SubGroup      *SubGroup `json:"subGroup,omitempty"`
	// PodIndexOffset is an expression for the number of the set's first pod, where
	// that is not 0.
	PodIndexOffset string `json:"podIndexOffset,omitempty"`
}

// SubGroup says how the pods of a set fall into equal parts.
type SubGroup struct {
	IndexLabel string `json:"indexLabel"`
	// Count is an expression for the number of parts.
	Count string `json:"count"`
}

// SetCount is a place the number of pods is written to.
type SetCount struct {
	Path string `json:"path"`
	// When is an expression: whether it is written there.
	When string `json:"when,omitempty"`
}

// Inject are the paths of what an admission adds to pods.
type Inject struct {
	Labels       string `json:"labels,omitempty"`
	Annotations  string `json:"annotations,omitempty"`
	NodeSelector string `json:"nodeSelector,omitempty"`
	Tolerations  string `json:"tolerations,omitempty"`
	// Affinity is where pods are kept off nodes that are reserved for others, which are gated otherwise. Without it nothing
	// keeps them off.
	Affinity string `json:"affinity,omitempty"`
	// Instead are paths of fields that the ones above replace, where the kind's API
	// does not allow both.
	Instead []string `json:"instead,omitempty"`
}

// GatedPods says how the pods of a kind that cannot be suspended are labelled.
// Each pod is a job of its own, unless Group makes one of several.
type GatedPods struct {
	// Labels and Annotations are the paths of maps that the operator copies to the
	// pods: the queue name, the priority class and the kind are written there.
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	// Group makes one job of several pods. PodSets say how many there are, and what
	// they request.
	Group *PodGroup `json:"group,omitempty"`
}

// PodGroup says which pods belong together, in expressions that see "pod".
type PodGroup struct {
	// Object is the name of the object the pod belongs to.
	Object string `json:"object"`
	// Key distinguishes the groups of one object.
	Key string `json:"key,omitempty"`
	// PodSet is the name of the pod set the pod belongs to; the first, where absent.
	PodSet string `json:"podSet,omitempty"`
	// Fixed are the paths of fields that may not change while the object is in a
	// queue: its groups were admitted with them.
	Fixed []string `json:"fixed,omitempty"`
	// Owned: the object owns the pods, which are one group. The workload is made
	// from the object, before there are pods, and stays while there are none.
	Owned bool `json:"owned,omitempty"`
}
