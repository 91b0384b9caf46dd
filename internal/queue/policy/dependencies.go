package policy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// anyNamespace stands for all of them.
const anyNamespace = "*"

// dependencies is the field of namespaces whose jobs may be waited for.
var dependencies = field{
	path: Namespaces,
	text: func(s *v1alpha1.QueuePolicySpec) string {
		if s.Dependencies == nil {
			return ""
		}
		return strings.Join(s.Dependencies.Namespaces, ", ")
	},
	check: func(text string) error {
		for name := range strings.SplitSeq(text, ", ") {
			if name != anyNamespace && len(validation.IsDNS1123Label(name)) > 0 {
				return fmt.Errorf("%q is no namespace", name)
			}
		}
		return nil
	},
}

// MayWaitFor says that jobs may wait for those of another namespace.
func (s Settings) MayWaitFor(namespace string) bool {
	for name := range strings.SplitSeq(s.Text(Namespaces), ", ") {
		if name == anyNamespace || name == namespace {
			return true
		}
	}
	return false
}
