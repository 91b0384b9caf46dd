package workload

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// When is how a job must have ended before those that come after it start.
type When string

// The ways to end.
const (
	WhenOK    When = "ok"    // it succeeded
	WhenNotOK When = "notok" // it failed
	WhenAny   When = "any"   // either
)

// KindWorkload is the kind of a dependency that names a workload itself, whatever job it is of.
const KindWorkload = "workload"

// What a job's user can write is bounded: everything here is looked at whenever one of the named jobs ends.
const (
	mostDependencies       = 1000
	longestDependencies    = 32 << 10
	longestEntryInMessages = 100
)

// Dependency is a job that has to end before another one starts, or one index of it.
type Dependency struct {
	When When
	// Kind is the job's in lower case, or workload.
	Kind, Namespace, Name string
	// Index of an indexed Job, in digits; "": all of the job.
	Index string
}

// kindIndexed is the kind of jobs whose indexes can be named.
const kindIndexed = "job"

// In is the dependency as it is written in a namespace.
func (d Dependency) In(namespace string) string {
	text := string(d.When) + " " + d.Kind + "/"
	if d.Namespace != namespace {
		text += d.Namespace + "/"
	}
	if text += d.Name; d.Index != "" {
		text += "[" + d.Index + "]"
	}
	return text
}

// Dependencies are what a job or workload of a namespace says in its annotation; "" is none.
func Dependencies(text, namespace string) ([]Dependency, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > longestDependencies {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), longestDependencies)
	}
	entries := strings.Split(text, ",")
	if len(entries) > mostDependencies {
		return nil, fmt.Errorf("%d jobs are more than %d", len(entries), mostDependencies)
	}
	list := make([]Dependency, 0, len(entries))
	seen := make(map[Dependency]bool, len(entries))
	for _, entry := range entries {
		d, err := dependency(entry, namespace)
		if err != nil {
			return nil, err
		}
		first, last, err := indexRange(d.Index)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", shortened(entry), err)
		}
		if len(list)+last-first >= mostDependencies {
			return nil, fmt.Errorf("more than %d jobs and indexes", mostDependencies)
		}
		for i := first; i <= last; i++ {
			if d.Index != "" {
				d.Index = strconv.Itoa(i)
			}
			if !seen[d] {
				seen[d] = true
				list = append(list, d)
			}
		}
	}
	return list, nil
}

// indexRange reads an index, or a range of them such as 0-9.
func indexRange(text string) (first, last int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	from, to, several := strings.Cut(text, "-")
	if !several {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 31)
	b, err2 := strconv.ParseUint(to, 10, 31)
	if err1 != nil || err2 != nil || b < a {
		return 0, 0, errors.New("an index is a number, or a range such as [0-9]")
	}
	return int(a), int(b), nil
}

// shortened is an entry as a message has it.
func shortened(entry string) string {
	if entry = strings.TrimSpace(entry); len(entry) > longestEntryInMessages {
		return entry[:longestEntryInMessages] + "…"
	}
	return entry
}

func dependency(entry, namespace string) (d Dependency, err error) {
	wrong := func(what string) error { return fmt.Errorf("%q %s", shortened(entry), what) }
	words := strings.Fields(entry)
	if len(words) != 2 {
		return d, wrong(`is not of the form "ok job/prepare"`)
	}
	d.When = When(words[0])
	if !slices.Contains([]When{WhenOK, WhenNotOK, WhenAny}, d.When) {
		return d, wrong("begins with none of ok, notok, any")
	}
	named, index, indexed := strings.Cut(words[1], "[")
	if indexed {
		if d.Index, indexed = strings.CutSuffix(index, "]"); !indexed || d.Index == "" {
			return d, wrong("has no index as in job/prepare[3]")
		}
	}
	parts := strings.Split(named, "/")
	switch len(parts) {
	case 2:
		d.Kind, d.Namespace, d.Name = strings.ToLower(parts[0]), namespace, parts[1]
	case 3:
		d.Kind, d.Namespace, d.Name = strings.ToLower(parts[0]), parts[1], parts[2]
	default:
		return d, wrong("names no job as in job/prepare, or job/data/prepare in namespace data")
	}
	switch {
	case len(validation.IsDNS1123Label(d.Kind)) > 0:
		return d, wrong("has no kind of job before the name")
	case indexed && d.Kind != kindIndexed:
		return d, wrong("has an index, which only a job/… has")
	case len(validation.IsDNS1123Label(d.Namespace)) > 0:
		return d, wrong("has no namespace between kind and name")
	case len(validation.IsDNS1123Subdomain(d.Name)) > 0:
		return d, wrong("has no name of a job")
	}
	return d, nil
}

// UnmetDependencies are those of a workload that have not come true. One with quota has none, and neither has a slice of
// a job that runs: they are about its start.
func UnmetDependencies(wl *kueue.Workload) ([]Dependency, error) {
	if wl.Annotations[v1alpha1.AfterAnnotation] == "" || HasReservation(wl) || IsFinished(wl) || Replaces(wl).Name != "" {
		return nil, nil
	}
	list, err := Dependencies(wl.Annotations[v1alpha1.AfterAnnotation], wl.Namespace)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", v1alpha1.AfterAnnotation, err)
	}
	met := map[string]bool{}
	for entry := range strings.SplitSeq(wl.Annotations[v1alpha1.AfterMetAnnotation], ", ") {
		met[entry] = true
	}
	return slices.DeleteFunc(list, func(d Dependency) bool { return met[d.In(wl.Namespace)] }), nil
}

// SetMet notes on a workload that dependencies have come true.
func SetMet(wl *kueue.Workload, list []Dependency) {
	var met []string
	if before := wl.Annotations[v1alpha1.AfterMetAnnotation]; before != "" {
		met = append(met, before)
	}
	for _, d := range list {
		met = append(met, d.In(wl.Namespace))
	}
	annotations := make(map[string]string, len(wl.Annotations)+1)
	for key, value := range wl.Annotations {
		annotations[key] = value
	}
	annotations[v1alpha1.AfterMetAnnotation] = strings.Join(met, ", ")
	wl.Annotations = annotations
}

// Outcome is how the job of a workload ended.
type Outcome uint8

// The outcomes.
const (
	NotEnded Outcome = iota
	Succeeded
	Failed
	// Gone: the job was deleted before it ended, or the workload goes on as another one.
	Gone
)

// OutcomeOf is how the job of a workload ended.
func OutcomeOf(wl *kueue.Workload) Outcome {
	if !IsFinished(wl) {
		return NotEnded
	}
	switch condition(wl, kueue.WorkloadFinished).Reason {
	case kueue.WorkloadFinishedReasonSucceeded:
		return Succeeded
	case kueue.WorkloadFinishedReasonOwnerNotFound, kueue.WorkloadSliceReplaced:
		return Gone
	}
	return Failed
}
