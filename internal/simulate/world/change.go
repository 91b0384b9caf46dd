package world

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// Set is the cluster with changes, a comma between:
//
//	queue/NAME.SETTING=VALUE                 settings of a ClusterQueue; * stands for all
//	cohort/NAME.SETTING=VALUE                settings of a Cohort
//	localqueue/NAMESPACE/NAME.SETTING=VALUE  settings of a LocalQueue
//	policy.SETTING=VALUE                     settings of all queues together
//	policy/NAME.SETTING=VALUE                settings of the queues that a QueuePolicy is about
//	faults.SETTING=VALUE                     nodes that are lost, taken back or sold out, in this variant
//	+4x8:MODEL[@WHERE]                       more nodes: a queue's or a flavor's, or with a label, KEY=VALUE
//	-4x8:MODEL[@WHERE]                       fewer
func (c *Cluster) Set(changes string) (*Cluster, error) {
	out := c.clone()
	out.nodesBefore = cmp.Or(c.nodesBefore, len(c.Nodes))
	for _, word := range wordsOf(changes) {
		if err := out.change(word); err != nil {
			return nil, err
		}
	}
	var faults Faults
	for _, change := range out.faults {
		change(&faults)
	}
	if nodes := faults.namesNone(out); nodes != "" {
		return nil, fmt.Errorf("%q: %w", changes, out.noSuchNodes(nodes))
	}
	return out, nil
}

// wordsOf are the single changes. A comma in a value, as in the times of a CronJob, 0 8,20 * * *, ends none: what follows it is no
// change.
func wordsOf(changes string) []string {
	var words []string
	for part := range strings.SplitSeq(changes, ",") {
		word := strings.TrimSpace(part)
		switch change := strings.Contains(word, "=") || strings.HasPrefix(word, "+") || strings.HasPrefix(word, "-"); {
		case word == "":
		case change || len(words) == 0 || !strings.Contains(words[len(words)-1], "@"):
			words = append(words, word)
		default:
			words[len(words)-1] += "," + word
		}
	}
	return words
}

func (c *Cluster) change(word string) error {
	if shape, ok := strings.CutPrefix(word, "+"); ok {
		return c.more(shape)
	}
	if shape, ok := strings.CutPrefix(word, "-"); ok {
		return c.fewer(shape)
	}
	left, value, ok := strings.Cut(word, "=")
	of, setting, dotted := strings.Cut(left, ".")
	kind, name, named := strings.Cut(of, "/")
	if named {
		name, setting, dotted = c.named(kind, left[len(kind)+1:])
	}
	settings, known := kinds[kind]
	asked := kind
	if !ok || !dotted || !known {
		return fmt.Errorf("%q: want queue/NAME.SETTING=VALUE, cohort/NAME.SETTING=VALUE, localqueue/NAMESPACE/NAME.SETTING=VALUE, policy.SETTING=VALUE, policy/NAME.SETTING=VALUE, faults.SETTING=VALUE, +COUNTxCARDS:MODEL or -COUNTxCARDS:MODEL", word)
	}
	names := []string{name}
	if kind == "policy" && name != "" {
		kind = "queue"
		settings, names = kinds["queue"], c.Policies[name]
		if _, ofTargets := ofPolicies[strings.ToLower(setting)]; ofTargets {
			settings, names = ofPolicies, []string{name}
		}
		if _, exists := c.Targets[name]; exists && len(names) == 0 {
			return fmt.Errorf("%q: QueuePolicy %s is about no ClusterQueue; of its targets %s can be set", word, name, join(sortedKeys(ofPolicies), 30))
		}
	}
	set, known := settingOf(settings, kind, setting)
	if !known {
		return fmt.Errorf("%q: the settings of %s are %s", word, kind, join(namesOf(settings, kind), 30))
	}
	changed, err := false, error(nil)
	for _, name := range names {
		if changed, err = set(c, name, value); err != nil || !changed {
			break
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w", word, err)
	case !changed:
		return fmt.Errorf("%q: there is no %s %s", word, asked, name)
	}
	return nil
}

// named parts NAME.SETTING. Names may have dots: of those that there are the longest counts after which a setting follows, or else
// what is before the first dot.
func (c *Cluster) named(kind, text string) (name, setting string, dotted bool) {
	settings := kinds[kind]
	if kind == "policy" {
		settings = kinds["queue"]
	}
	for _, known := range c.namesOf(kind) {
		rest, is := strings.CutPrefix(text, known+".")
		if !is || len(known) <= len(name) {
			continue
		}
		if _, sets := settingOf(settings, kind, rest); sets {
			name, setting, dotted = known, rest, true
		}
	}
	if dotted {
		return name, setting, true
	}
	return strings.Cut(text, ".")
}

// namesOf objects of a kind that there are.
func (c *Cluster) namesOf(kind string) []string {
	var names []string
	switch kind {
	case "queue":
		for i := range c.Queues {
			names = append(names, c.Queues[i].Name)
		}
	case "cohort":
		names = sortedKeys(c.tree().Cohorts)
		for i := range c.Cohorts {
			names = append(names, c.Cohorts[i].Name)
		}
	case "localqueue":
		for i := range c.LocalQueues {
			names = append(names, c.LocalQueues[i].String())
		}
	case "policy":
		names = sortedKeys(c.Targets)
	}
	return names
}

// settingOf a kind by its name, whatever its case.
func settingOf(settings map[string]setter, kind, setting string) (setter, bool) {
	if set, known := settings[strings.ToLower(setting)]; known {
		return set, true
	}
	if set, known := quotaSetting(kind, setting); known {
		return set, true
	}
	for field := range timings {
		if strings.EqualFold(field, setting) && kind == "queue" {
			return setTiming(field), true
		} else if strings.EqualFold(field, setting) && kind == "cohort" {
			return ofCohort(setTiming(field)), true
		}
	}
	return nil, false
}

func namesOf(settings map[string]setter, kind string) []string {
	names := sortedKeys(settings)
	if kind == "queue" || kind == "cohort" {
		names = append(append(names, sortedKeys(quotaSettings)...), sortedKeys(timings)...)
		slices.Sort(names)
	}
	return names
}

// A setter changes a setting of the objects of a name, and reports whether there are any.
type setter func(c *Cluster, name, value string) (bool, error)

var kinds = map[string]map[string]setter{
	"queue": {
		"cohort":              ofQueues(func(_ *Cluster, q *admission.Queue, v string) error { q.Cohort = v; return nil }),
		"weight":              ofQueues(setWeight),
		"queueingstrategy":    ofQueues(setStrategy),
		"backfill":            queueBackfill,
		"order":               queueOrder,
		"withinclusterqueue":  ofQueues(choice(func(q *admission.Queue, v admission.PreemptionPolicy) { q.Preemption.WithinQueue = v }, preemptions)),
		"borrowwithincohort":  ofQueues(setBorrowWithinCohort),
		"reclaimwithincohort": ofQueues(choice(func(q *admission.Queue, v admission.PreemptionPolicy) { q.Preemption.ReclaimWithinCohort = v }, preemptions)),
		"budget":              ofQueues(func(c *Cluster, q *admission.Queue, v string) error { return c.setBudget(ofQueue(q), v) }),
		"reservation":         ofQueues(func(c *Cluster, q *admission.Queue, v string) error { return c.setReservation(ofQueue(q), v) }),
		"defragmentation":     ofQueues(setDefragmentation),
		"shareofnodes":        ofQueuePolicy(setShareOfNodes),
		"headroom":            ofQueuePolicy(setHeadroom),
		"window":              ofQueuePolicy(setWindow),

		"flavorfungibility.whencanborrow":  ofQueues(choice(func(q *admission.Queue, v bool) { q.Fungibility.BorrowTryNext = v }, tryNext)),
		"flavorfungibility.whencanpreempt": ofQueues(choice(func(q *admission.Queue, v bool) { q.Fungibility.PreemptStay = !v }, tryNext)),
		"flavorfungibility.preference":     ofQueues(choice(func(q *admission.Queue, v bool) { q.Fungibility.PreferPreemption = v }, preferPreemption)),

		"runtime":  ofQueuePolicy(setRunTime),
		"quantile": ofQueuePolicy(setQuantile),
	},
	"cohort": {
		"fairsharing":     setFairSharing,
		"weight":          ofCohorts(setCohortWeight),
		"parent":          ofCohorts(setParent),
		"budget":          setCohortBudget,
		"backfill":        ofCohort(queueBackfill),
		"order":           ofCohort(queueOrder),
		"defragmentation": ofCohort(ofQueues(setDefragmentation)),
	},
	"faults": faultSettings,
	"localqueue": {
		"budget":      ofLocalQueue((*Cluster).setBudget),
		"reservation": ofLocalQueue((*Cluster).setReservation),
		"runtime":     ofLocalQueue(atPolicy(setRunTime)),
		"quantile":    ofLocalQueue(atPolicy(setQuantile)),
	},
	"policy": {
		"nopreemptionrings": ofOptions(func(o *admission.Options, v string) (err error) { o.NoRings, err = onOff(v); return err }),
		"preemptafter": ofOptions(func(o *admission.Options, v string) (err error) {
			o.PreemptionDelay, err = time.ParseDuration(v)
			return err
		}),
		"preemptioncooldown": ofOptions(func(o *admission.Options, v string) (err error) {
			o.PreemptionCooldown, err = time.ParseDuration(v)
			return err
		}),
		"fairsharing": ofOptions(func(o *admission.Options, v string) error { return choose(&o.Policy, v, capacityPolicies) }),
		"placement":   func(c *Cluster, _, v string) (bool, error) { c.Placement = v; return true, nil },
	},
}

var (
	queueBackfill = says(policy.Backfill, ofQueues(setBackfill))
	queueOrder    = says(policy.Order, ofQueues(choice(func(q *admission.Queue, v admission.Order) { q.Order = v }, orders)))

	orders      = map[string]admission.Order{"Age": admission.OrderByAge, "LeastAttainedService": admission.OrderLeastAttainedService}
	preemptions = map[string]admission.PreemptionPolicy{
		"Never": admission.PreemptNever, "LowerPriority": admission.PreemptLowerPriority,
		"LowerOrNewerEqualPriority": admission.PreemptLowerOrNewerEqualPriority, "Any": admission.PreemptAny,
	}
	tryNext          = map[string]bool{string(kueue.TryNextFlavor): true, string(kueue.MayStopSearch): false}
	preferPreemption = map[string]bool{string(kueue.PreemptionOverBorrowing): true, string(kueue.BorrowingOverPreemption): false}
	capacityPolicies = map[string]admission.CapacityPolicy{"off": admission.PolicyFIFO, "fifo": admission.PolicyFIFO, "drf": admission.PolicyDRF, "maxmin": admission.PolicyMaxMin}
)

// setBackfill as a QueuePolicy does: with backfill the queue is ordered strictly, and without as it declares.
func setBackfill(c *Cluster, q *admission.Queue, text string) error {
	easy := false
	if err := choose(&easy, text, map[string]bool{"EASY": true, "None": false, "on": true, "off": false}); err != nil {
		return err
	}
	strict := c.declaresStrict(q)
	q.Backfill, q.StrictFIFO = easy, easy || strict
	return nil
}

// setStrategy declares another queueing strategy, which counts while there is no backfill.
func setStrategy(c *Cluster, q *admission.Queue, text string) error {
	strict := false
	if err := choose(&strict, text, map[string]bool{"StrictFIFO": true, "BestEffortFIFO": false}); err != nil {
		return err
	}
	c.strict[q.Name] = strict
	q.StrictFIFO = strict || q.Backfill
	return nil
}

// declaresStrict says whether a queue is ordered strictly by what it declares itself, and notes it.
func (c *Cluster) declaresStrict(q *admission.Queue) bool {
	strict, known := c.strict[q.Name]
	if !known {
		strict = q.StrictFIFO
		c.strict[q.Name] = strict
	}
	return strict
}

func ofQueues(set func(*Cluster, *admission.Queue, string) error) setter {
	return func(c *Cluster, name, value string) (bool, error) {
		found := false
		for i := range c.Queues {
			if q := &c.Queues[i]; name == "*" || q.Name == name {
				found = true
				if err := set(c, q, value); err != nil {
					return true, err
				}
			}
		}
		return found, nil
	}
}

func ofOptions(set func(*admission.Options, string) error) setter {
	return func(c *Cluster, _, value string) (bool, error) { return true, set(&c.Options, value) }
}

// choice sets one of some values.
func choice[T any](set func(*admission.Queue, T), values map[string]T) func(*Cluster, *admission.Queue, string) error {
	return func(_ *Cluster, q *admission.Queue, text string) error {
		var v T
		if err := choose(&v, text, values); err != nil {
			return err
		}
		set(q, v)
		return nil
	}
}

func choose[T any](into *T, text string, values map[string]T) error {
	v, ok := values[text]
	if !ok {
		return fmt.Errorf("%q is none of %s", text, join(sortedKeys(values), 20))
	}
	*into = v
	return nil
}

func onOff(text string) (on bool, err error) {
	return on, choose(&on, text, map[string]bool{"on": true, "off": false})
}

func setWeight(_ *Cluster, q *admission.Queue, text string) (err error) {
	q.FairWeight, err = weight(text)
	return err
}

func weight(text string) (*float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 1) {
		return nil, fmt.Errorf("%q is not a weight", text)
	}
	return &v, nil
}
