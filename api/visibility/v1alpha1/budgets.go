package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BudgetReport is how much is used of the budgets that a LocalQueue's workloads use. It has the LocalQueue's name.
type BudgetReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Budgets           []Budget `json:"budgets"`
	// Spending is what the LocalQueue's own workloads have used in the periods of its budgets, this one and earlier ones, the
	// latest first.
	Spending []Spending `json:"spending,omitempty"`
}

// Spending is what was used in a period: by all runs of all workloads, also of those that were evicted, and what runs so far.
type Spending struct {
	// Period is Day, Week or Month.
	Period   string      `json:"period"`
	TimeZone string      `json:"timeZone"`
	From     metav1.Time `json:"from"`
	Until    metav1.Time `json:"until"`
	GPUHours string      `json:"gpuHours"`
	// Dollars are what nodes cost whose prices CloudOffers have, in US dollars.
	Dollars string `json:"dollars"`
	// By are the flavors, by name.
	By []FlavorSpending `json:"by,omitempty"`
	// Users are who made the jobs, by name, where that is recorded; without a name: what no user is known of.
	Users []UserSpending `json:"users,omitempty"`
}

// UserSpending is what the jobs of a user have used.
type UserSpending struct {
	User     string `json:"user"`
	GPUHours string `json:"gpuHours"`
	Dollars  string `json:"dollars"`
}

// FlavorSpending is what was used of a flavor.
type FlavorSpending struct {
	Flavor   string `json:"flavor"`
	GPUHours string `json:"gpuHours"`
	Dollars  string `json:"dollars"`
}

// Budget is how much is used of one. Amounts are decimal numbers of its unit.
type Budget struct {
	// Target is what it is on, as in Cohort/research.
	Target   string      `json:"target"`
	Period   string      `json:"period"`
	TimeZone string      `json:"timeZone"`
	From     metav1.Time `json:"from"`
	Until    metav1.Time `json:"until"`
	// Unit is GPU-hours or a currency.
	Unit   string `json:"unit"`
	Amount string `json:"amount"`
	// Spent is what all that use it have spent, Committed what those that run will still, as far as that is known.
	Spent     string `json:"spent"`
	Committed string `json:"committed"`
	Left      string `json:"left"`
	// SpentHere is what the LocalQueue's own workloads have spent of it.
	SpentHere string `json:"spentHere,omitempty"`
	WhenSpent string `json:"whenSpent"`
	// NearlySpent: more is spent than where its policy warns.
	NearlySpent bool   `json:"nearlySpent"`
	Policy      string `json:"policy"`
}
