package jobs

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a row of the table: all there is to say about a kind of job. Paths
// are dotted field names from the object's root.
type Kind struct {
	// Name as Kueue's configuration writes it.
	Name string
	GVK  schema.GroupVersionKind
	// Resource is the plural name webhooks and roles use.
	Resource string
	// Suspend is the path of the boolean that holds the job back.
	Suspend string
	PodSets []PodSet
	// Conditions is the path of the condition list; a condition of one of these
	// types being true means the job ended so.
	Conditions string
	Succeeded  []string
	Failed     []string
	// Active, Ready and Done are paths of pod counts in the status: running in
	// any way, ready, and finished well.
	Active, Ready, Done string
}

// PodSet says where a job keeps a pod template and how many pods it wants of it.
type PodSet struct {
	Name     string
	Template string
	// Count is the path of the number of pods, one where absent; AtMost is a
	// path that lowers it.
	Count  string
	AtMost string
}

// Table lists the kinds the controller knows, in the order they are set up.
func Table() []Kind {
	return []Kind{
		{
			Name:       "batch/job",
			GVK:        schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
			Resource:   "jobs",
			Suspend:    "spec.suspend",
			PodSets:    []PodSet{{Name: "main", Template: "spec.template", Count: "spec.parallelism", AtMost: "spec.completions"}},
			Conditions: "status.conditions",
			Succeeded:  []string{"Complete"},
			Failed:     []string{"Failed"},
			Active:     "status.active",
			Ready:      "status.ready",
			Done:       "status.succeeded",
		},
	}
}

// index finds a row by kind; two rows for one kind are a mistake in the table.
func index(table []Kind) map[schema.GroupVersionKind]*Kind {
	byKind := make(map[schema.GroupVersionKind]*Kind, len(table))
	for i := range table {
		if byKind[table[i].GVK] != nil {
			panic(fmt.Sprintf("jobs: two rows for %s", table[i].GVK))
		}
		byKind[table[i].GVK] = &table[i]
	}
	return byKind
}
