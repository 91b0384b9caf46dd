package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Budget is an amount of GPU-hours, or of money, for a period. A workload starts if what is spent in the period, what
// those that run will still use of it, and what it will use itself are at most the amount; otherwise it waits.
//
// +kubebuilder:validation:XValidation:rule="!has(self.currency) || has(self.rates) || self.currency == 'USD'",message="money needs rates: say what a unit of a resource costs an hour; without rates it is USD, at the prices of CloudOffers",fieldPath=".rates"
type Budget struct {
	// Period is Day, Week (from Monday on) or Month, of a calendar.
	Period BudgetPeriod `json:"period"`
	// Amount is how much of it there is in a period.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) > 0 && quantity(string(self)).compareTo(quantity('1000000000')) <= 0",message="must be more than 0 and at most 1000000000"
	Amount resource.Quantity `json:"amount"`
	// Currency is what the amount is of, as in EUR; GPU-hours unless set.
	//
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency,omitempty"`
	// Rates are what a unit of a resource costs an hour. In GPU-hours a card costs 1 that no rate names, and a
	// hundredth of a card 0.01; in money nothing does. USD without rates is at the prices of CloudOffers.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=flavor
	// +listMapKey=resource
	Rates []Rate `json:"rates,omitempty"`
	// TimeZone is of the calendar, as in Europe/Berlin; UTC unless set.
	//
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// WhenSpent is what becomes of workloads that run when everything is spent: with Wait, the default, they go on, and
	// others wait for the next period; with Drain they are stopped, and wait as well.
	WhenSpent WhenSpent `json:"whenSpent,omitempty"`
	// WarnAt, in percent of the amount, is from when on the policy warns; 80 unless set.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	WarnAt *int32 `json:"warnAt,omitempty"`
}

// Rate is what a unit of a resource costs an hour.
type Rate struct {
	// Flavor it is the rate of; all flavors without one of their own unless set.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=""
	Flavor string `json:"flavor"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:default="nvidia.com/gpu"
	Resource string `json:"resource"`
	// PerHour is the weight, or the price: at least 0 and at most 1000000, in steps of a millionth, and of a thousandth for cpu.
	PerHour resource.Quantity `json:"perHour"`
}

// BudgetPeriod is how long a budget lasts.
//
// +kubebuilder:validation:Enum=Day;Week;Month
type BudgetPeriod string

// The periods.
const (
	PeriodDay   BudgetPeriod = "Day"
	PeriodWeek  BudgetPeriod = "Week"
	PeriodMonth BudgetPeriod = "Month"
)

// WhenSpent is what becomes of workloads that run when a budget is spent.
//
// +kubebuilder:validation:Enum=Wait;Drain
type WhenSpent string

// What becomes of them.
const (
	WhenSpentWait  WhenSpent = "Wait"
	WhenSpentDrain WhenSpent = "Drain"
)

// SubmittedByAnnotation is on a job, and its Workload, with the name of the user who made the job, where the configuration has
// controllers.recordSubmitters. The webhook writes it, and nobody can change it. Of a job that a controller makes, as those of a
// CronJob, that is the controller's service account.
const SubmittedByAnnotation = "elasticai.io/submitted-by"

// BudgetAccount is what the workloads of one LocalQueue have used, counted while a budget is on it or above it. elastic-queue
// writes it, and nobody else has to; who deletes it has the LocalQueue start anew.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="LocalQueue",type=string,JSONPath=`.spec.localQueue`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BudgetAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BudgetAccountSpec   `json:"spec"`
	Status BudgetAccountStatus `json:"status,omitempty"`
}

// BudgetAccountList is a list of BudgetAccounts.
//
// +kubebuilder:object:root=true
type BudgetAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BudgetAccount `json:"items"`
}

// BudgetAccountSpec says whose account it is.
type BudgetAccountSpec struct {
	Namespace  string `json:"namespace"`
	LocalQueue string `json:"localQueue"`
}

// BudgetAccountStatus is what was used by runs that are over. A run is a time in which a workload had quota.
type BudgetAccountStatus struct {
	// Sums by period.
	//
	// +listType=atomic
	Sums []BudgetSum `json:"sums,omitempty"`
	// Settled are the runs that the sums have, as long as a workload may still tell of them.
	//
	// +listType=atomic
	Settled []SettledRun `json:"settled,omitempty"`
}

// BudgetSum is what was used in a period.
type BudgetSum struct {
	Period   BudgetPeriod `json:"period"`
	TimeZone string       `json:"timeZone"`
	From     metav1.Time  `json:"from"`
	Until    metav1.Time  `json:"until"`
	// +listType=atomic
	Used []BudgetUsed `json:"used,omitempty"`
	// Users are what is known of who made the jobs, also in Used. Of many, those beyond are together "(others)".
	//
	// +listType=atomic
	Users []BudgetUser `json:"users,omitempty"`
}

// BudgetUser is what the jobs of a user have used of a resource, times seconds.
type BudgetUser struct {
	User        string `json:"user"`
	Resource    string `json:"resource"`
	UnitSeconds int64  `json:"unitSeconds"`
}

// BudgetUsed is an amount of a resource in a flavor, times seconds. CPU is counted in thousandths.
type BudgetUsed struct {
	ClusterQueue string `json:"clusterQueue"`
	Flavor       string `json:"flavor"`
	Resource     string `json:"resource"`
	UnitSeconds  int64  `json:"unitSeconds"`
}

// SettledRun names a run, and says since when no workload tells of it any more.
type SettledRun struct {
	UID   string       `json:"uid"`
	Start metav1.Time  `json:"start"`
	Gone  *metav1.Time `json:"gone,omitempty"`
}
