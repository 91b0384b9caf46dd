package outside

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "sigs.k8s.io/kueue/pkg/features" // defines the gates
)

// byDefault are the gates before any spec changed one.
var byDefault = snapshot()

func snapshot() map[string]bool {
	all := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		all[string(name)] = utilfeature.DefaultFeatureGate.Enabled(name)
	}
	return all
}

// gates are those that are not as by default, as a flag has them.
func gates() string {
	now := snapshot()
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != byDefault[name] {
			changed = append(changed, fmt.Sprintf("%s=%t", name, now[name]))
		}
	}
	return strings.Join(changed, ",")
}
