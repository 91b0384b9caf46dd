package kinds

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// InUse is the rows that can be used in this cluster. It changes while the program runs.
type InUse struct {
	mu   sync.RWMutex
	rows []*Kind
}

func (k *InUse) Set(rows []*Kind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows = rows
}

func (k *InUse) find(match func(*Kind) bool) *Kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if i := slices.IndexFunc(k.rows, match); i >= 0 {
		return k.rows[i]
	}
	return nil
}

func (k *InUse) ByName(name string) *Kind {
	return k.find(func(row *Kind) bool { return name != "" && row.Name == name })
}

// ByLowerCase finds a row by the name of its kind in lower case.
func (k *InUse) ByLowerCase(kind string) *Kind {
	return k.find(func(row *Kind) bool { return strings.EqualFold(row.GVK.Kind, kind) })
}

func (k *InUse) ByGVK(gvk schema.GroupVersionKind) *Kind {
	return k.find(func(row *Kind) bool { return row.GVK == gvk })
}

func (k *InUse) ByGroupKind(gk schema.GroupKind) *Kind {
	return k.find(func(row *Kind) bool { return row.GVK.GroupKind() == gk })
}
