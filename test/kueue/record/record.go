// Package record notes what a suite of Kueue's asks of the manager that it sets up. Kueue's packages call it, once
// edited; it imports nothing, so any of them can.
package record

import "sync"

var (
	settingUp sync.Mutex

	mu    sync.Mutex
	asked = map[string]any{}
	names = map[string][]string{}
	gates []func()
)

// Note remembers a value that was asked for by a name.
func Note(name string, value any) {
	mu.Lock()
	defer mu.Unlock()
	asked[name] = value
}

// Add remembers one more value of a list.
func Add(name string, values ...string) {
	mu.Lock()
	defer mu.Unlock()
	names[name] = append(names[name], values...)
}

// Asked is what was remembered.
type Asked struct {
	values map[string]any
	lists  map[string][]string
}

// During returns what was remembered while a manager was set up. Suites of several clusters set up some at the same time.
func During(setup func()) Asked {
	settingUp.Lock()
	defer settingUp.Unlock()
	setup()
	mu.Lock()
	defer mu.Unlock()
	all := Asked{asked, names}
	asked, names = map[string]any{}, map[string][]string{}
	return all
}

// List is what was added by a name.
func (a Asked) List(name string) []string { return a.lists[name] }

// Value is what was noted by a name, if it was something of that type.
func Value[T any](a Asked, name string) (T, bool) {
	v, ok := a.values[name].(T)
	return v, ok
}

// OnGates has f called whenever a suite has changed feature gates.
func OnGates(f func()) {
	mu.Lock()
	defer mu.Unlock()
	gates = append(gates, f)
}

// GatesChanged is called by a suite that has changed feature gates.
func GatesChanged() {
	mu.Lock()
	all := gates
	mu.Unlock()
	for _, f := range all {
		f()
	}
}
