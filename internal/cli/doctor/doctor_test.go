package doctor

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kueue's plain reasons do not tell a workload that waits from one that waits in vain.
func TestNeverStarts(t *testing.T) {
	const missing = "couldn't assign flavors to pod set main: "
	for _, tc := range []struct{ reason, message, want string }{
		{"WaitingForQuota", missing + "insufficient unused quota for cpu in flavor f, 1 more needed", ""},
		{"Pending", missing + "insufficient unused quota for cpu in flavor f, 1 more needed", ""},
		{"Pending", missing + "flavor g doesn't match node affinity, insufficient unused quota for cpu in flavor f, 1 more needed", ""},
		{"Pending", missing + "7 of 8 pods fit", ""},
		{"ExceedsMaxQuota", "", "ExceedsMaxQuota"},
		{"Pending", missing + "insufficient quota for cpu in flavor f, previously considered podsets requests (0) + current podset request (9) > maximum capacity (4)", "ExceedsMaxQuota"},
		{"Pending", missing + "untolerated taint {spot true NoSchedule} in flavor f", "NoMatchingFlavor"},
		{"Pending", missing + "resource memory unavailable in ClusterQueue", "NoMatchingFlavor"},
		{"Pending", "workload namespace doesn't match ClusterQueue selector", "Misconfigured"},
		{"Inadmissible", "LocalQueue main doesn't exist", "Misconfigured"},
		{"Inadmissible", "ClusterQueue cq is inactive", ""},
		{"AdmissionGated", "Admission is gated by: example.com/gate", ""},
	} {
		if got := neverStarts(&metav1.Condition{Reason: tc.reason, Message: tc.message}); got != tc.want {
			t.Errorf("%s: %s: %q, want %q", tc.reason, tc.message, got, tc.want)
		}
	}
}

// Whatever a machine lacks, it is said how to get it.
func TestWhatAMachineLacks(t *testing.T) {
	found := machine(t.Context())
	if len(found) == 0 {
		t.Fatal("nothing is said of this machine")
	}
	for _, f := range found {
		if f.What == "" || f.Level != OK && f.Do == "" {
			t.Errorf("%+v", f)
		}
	}
}
