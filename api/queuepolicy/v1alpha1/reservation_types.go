package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// Reservation is quota that is set aside for a time.
// +kubebuilder:validation:XValidation:rule="has(self.quotas) || has(self.nodes)",message="reserves nothing: give it quotas or nodes"
type Reservation struct {
	// Name is for people.
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// Start is when it begins: a date and time, as in 2026-12-01T08:00, or, if it comes again, as in a CronJob: minute, hour,
	// day of the month, month, day of the week.
	//
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	Start string `json:"start"`
	// Duration is how long it lasts.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	Duration Duration `json:"duration"`
	// TimeZone is where the clock hangs, as in Europe/Berlin; UTC unless set.
	//
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// Job is the one that it is for, by kind and name, as in job/paper; all of the target's unless set. It need not exist yet.
	//
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Job string `json:"job,omitempty"`
	// Quotas are what is set aside.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=flavor
	// +listMapKey=resource
	Quotas []ReservedQuota `json:"quotas,omitempty"`
	// Nodes are set aside, by name: no job of a queue starts on them that could still run then, except those it is for.
	// What passes no queue is not governed by it.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`
}

// ReservedQuota is an amount of a flavor's resource.
type ReservedQuota struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Flavor string `json:"flavor"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Resource string            `json:"resource"`
	Amount   resource.Quantity `json:"amount"`
}
