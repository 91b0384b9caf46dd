// Package kubeversion has the Kubernetes inside report its own version. Kubernetes' builds tell the linker, which "go
// install" cannot. Importing the package is enough.
package kubeversion

import (
	"strings"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// compiled is the version in go.mod.
const compiled = "v1.37.1"

// What the linker would set.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

func init() {
	if !strings.HasPrefix(gitVersion, "v0.0.0-master") {
		return // the linker was told
	}
	numbers := strings.Split(strings.TrimPrefix(compiled, "v"), ".")
	gitVersion, gitMajor, gitMinor = compiled, numbers[0], numbers[1]
	_ = version.SetDynamicVersion(compiled) // it is what gitVersion now says
}
