package checks

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// What is wrong with a check's parameters is said in Kueue's words.
func TestBadParameters(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := &kueue.ProvisioningRequestConfig{}
	config.Name = "config"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build()
	for want, ref := range map[string]*kueue.AdmissionCheckParametersReference{
		"missing parameters reference":                                                    nil,
		"empty name: bad parameters reference":                                            {APIGroup: "kueue.x-k8s.io", Kind: "ProvisioningRequestConfig"},
		`wrong group "x", expecting "kueue.x-k8s.io": bad parameters reference`:           {APIGroup: "x", Kind: "ProvisioningRequestConfig", Name: "config"},
		`wrong kind "X", expecting "ProvisioningRequestConfig": bad parameters reference`: {APIGroup: "kueue.x-k8s.io", Kind: "X", Name: "config"},
		`provisioningrequestconfigs.kueue.x-k8s.io "other" not found`:                     {APIGroup: "kueue.x-k8s.io", Kind: "ProvisioningRequestConfig", Name: "other"},
		"": {APIGroup: "kueue.x-k8s.io", Kind: "ProvisioningRequestConfig", Name: "config"},
	} {
		check := &kueue.AdmissionCheck{}
		check.Spec.Parameters = ref
		got := ""
		err := Parameters(t.Context(), c, check, &kueue.ProvisioningRequestConfig{})
		if err != nil {
			got = err.Error()
		}
		if got != want || IsBadParameters(err) != (want != "") {
			t.Errorf("%+v: %q, want %q", ref, got, want)
		}
	}
}
