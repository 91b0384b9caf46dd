package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Action is one step of a schedule. Objects are named, not numbered: an action whose object is not there
// does nothing, so a schedule can be shortened.
type Action struct {
	Op   string
	Args []string
}

func (a Action) String() string { return strings.Join(append([]string{a.Op}, a.Args...), " ") }

func action(op string, args ...any) Action {
	a := Action{Op: op}
	for _, arg := range args {
		a.Args = append(a.Args, fmt.Sprint(arg))
	}
	return a
}

// arg is an argument, or "" where there is none.
func (a Action) arg(i int) string {
	if i < len(a.Args) {
		return a.Args[i]
	}
	return ""
}

// ParseSchedule reads actions, one in a line.
func ParseSchedule(text string) []Action {
	var list []Action
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			list = append(list, Action{fields[0], fields[1:]})
		}
	}
	return list
}

// FormatSchedule is what ParseSchedule reads.
func FormatSchedule(actions []Action) string {
	var b strings.Builder
	for _, a := range actions {
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// How a request ends beside "ok".
const (
	fails      = "fails"       // an error, and nothing was written
	timesOut   = "times-out"   // no answer, and nothing was written
	answerLost = "answer-lost" // no answer, and it was written
	late       = "late"        // no answer, and it is written later, or never
)

var badEnds = []string{fails, timesOut, answerLost, late}

// isFault says that an action is one of the faults that are counted.
func (a Action) isFault() bool {
	switch a.Op {
	case "relist", "kill", "stall", "node-lost", "skew", "overlap":
		return true
	case "answer":
		return a.arg(1) != "ok"
	case "start":
		return a.arg(1) != "0" // with stale lists
	}
	return false
}

// chooser takes the next action by a seed.
type chooser struct {
	*rand.Rand
	steps   int
	jobs    int
	stalled map[string]int // watches that deliver nothing until some step
	step    int
}

func newChooser(seed uint64, steps int) *chooser {
	return &chooser{Rand: rand.New(rand.NewPCG(seed, 0x5eed)), steps: steps, stalled: map[string]int{}}
}

func (c *chooser) oneOf(list []string) string { return list[c.IntN(len(list))] }

func (c *chooser) percent(n int) bool { return c.IntN(100) < n }

// next action, or none when the schedule is over.
func (c *chooser) next(w *World) (Action, bool) {
	if c.step++; c.step > c.steps {
		return Action{}, false
	}
	if c.percent(25) {
		if a, ok := c.fault(w); ok {
			return a, true
		}
	}
	if c.percent(4) {
		if a, ok := c.user(w); ok {
			return a, true
		}
	}
	if running := w.runningPods(); len(running) > 0 && c.percent(4) {
		return action("finish", c.oneOf(running)), true
	}
	for _, name := range w.running() {
		if role, old := strings.CutSuffix(name, oldSuffix); old && w.processes[role] != nil && c.percent(5) {
			return action("kill", name, c.IntN(4)), true
		}
	}
	for _, role := range w.missing() {
		if c.percent(30) {
			return action("start", role, c.staleness()), true
		}
	}
	var ready []Action
	for _, a := range w.progress() {
		if a.Op != "deliver" || c.stalled[a.String()] < c.step {
			ready = append(ready, a)
		}
	}
	if len(ready) == 0 || c.percent(6) {
		return action("sleep", []int{10, 100, 500, 1000, 3000, 20000}[c.IntN(6)]), true
	}
	return ready[c.IntN(len(ready))], true
}

// staleness is how many changes the first lists of a program do not have.
func (c *chooser) staleness() int {
	if c.percent(50) {
		return 0
	}
	return 1 + c.IntN(30)
}

func (c *chooser) fault(w *World) (Action, bool) {
	names := w.running()
	switch n := c.IntN(100); {
	case n < 55:
		if calls := w.waitingCalls(); len(calls) > 0 {
			return action("answer", c.oneOf(calls), c.oneOf(badEnds)), true
		}
	case n < 70:
		if len(names) > 0 {
			p := w.processes[c.oneOf(names)]
			return action("relist", p.name, c.oneOf(p.cache.Kinds())), true
		}
	case n < 78:
		if len(names) > 0 {
			p := w.processes[c.oneOf(names)]
			stall := action("deliver", p.name, c.oneOf(p.cache.Kinds()))
			c.stalled[stall.String()] = c.step + 5 + c.IntN(60)
			return action("stall", stall.Args[0], stall.Args[1]), true
		}
	case n < 88:
		if len(names) > 0 {
			return action("kill", c.oneOf(names), c.IntN(4)), true
		}
	case n < 94:
		return action("skew", c.IntN(7)-3), true
	case n < 96 && w.setting.TwoLeaders:
		return action("overlap", []string{roleQueue, roleGPU}[c.IntN(2)], []string{"at-once", "later"}[c.IntN(2)]), true
	default:
		if nodes := w.nodeNames(); len(nodes) > 1 {
			return action("node-lost", c.oneOf(nodes)), true
		}
	}
	return Action{}, false
}

// user is something that people do.
func (c *chooser) user(w *World) (Action, bool) {
	jobs := w.jobNames()
	switch n := c.IntN(100); {
	case n < 65 || len(jobs) == 0:
		if c.jobs >= w.setting.MostJobs {
			return Action{}, false
		}
		c.jobs++
		name := fmt.Sprintf("j%d", c.jobs)
		if c.percent(20) { // the name of one that may have been deleted
			name = fmt.Sprintf("j%d", 1+c.IntN(c.jobs))
		}
		return c.submit(w, name), true
	case n < 75:
		return action("delete-job", c.oneOf(jobs)), true
	case n < 82:
		return action("delete-workload", c.oneOf(jobs)), true
	case n < 87:
		return action("deactivate", c.oneOf(jobs)), true
	case n < 94:
		return action("activate", c.oneOf(jobs)), true
	case n < 97:
		return action("hold", c.oneOf(w.setting.queueNames()), []string{"None", "Hold", "HoldAndDrain"}[c.IntN(3)]), true
	}
	if lost := w.lostNodes(); len(lost) > 0 {
		return action("node-back", c.oneOf(lost)), true
	}
	return Action{}, false
}

func (c *chooser) submit(w *World, name string) Action {
	queue := c.oneOf(w.setting.queueNames())
	pods := 1 + c.IntN(3)
	size := 1 + c.IntN(3)
	if w.setting.Cards {
		size = []int{20, 50, 100}[c.IntN(3)]
	}
	return action("submit", name, queue, c.IntN(3), pods, size)
}
