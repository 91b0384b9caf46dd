package kubeversion

import (
	"os"
	"regexp"
	"testing"

	"k8s.io/component-base/version"
)

// The version that go.mod asks for, without a word to the linker.
func TestVersion(t *testing.T) {
	data, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)`).FindStringSubmatch(string(data))
	got := version.Get()
	if got.GitVersion != wanted[1] || got.Major != wanted[2] || got.Minor != wanted[3] {
		t.Errorf("the version is %s (%s, %s), go.mod asks for %s", got.GitVersion, got.Major, got.Minor, wanted[1])
	}
}
