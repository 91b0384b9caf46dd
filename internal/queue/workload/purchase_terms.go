package workload

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// PurchaseTerms are what a job says of the time and money that its nodes may take, where they are bought.
type PurchaseTerms struct {
	Deadline   time.Time     // when it should be done; zero: it does not say
	DelayPrice float64       // what an hour until its end is worth, US dollars
	Checkpoint time.Duration // how often it saves its work; 0: never
}

// What a job's user can write is bounded: it is reckoned with.
const (
	mostDelayPrice  = 1e6
	leastCheckpoint = time.Minute
	mostCheckpoint  = 30 * 24 * time.Hour
	longestTerm     = 64
)

// PurchaseTermsOf reads the annotations of a job or a workload. One that cannot be read counts as not given, and is named in
// the error.
func PurchaseTermsOf(annotations map[string]string) (terms PurchaseTerms, err error) {
	read := func(name string, value func(text string) error) {
		text, given := annotations[name]
		if !given {
			return
		}
		if len(text) > longestTerm {
			text = text[:longestTerm] + "…"
		}
		if wrong := value(text); wrong != nil {
			err = errors.Join(err, &TermError{Annotation: name, Text: text, Problem: wrong.Error()})
		}
	}
	read(cloudv1.DeadlineAnnotation, func(text string) error {
		at, wrong := time.Parse(time.RFC3339, text)
		if wrong != nil {
			return errors.New("want a time as in 2026-01-02T15:04:05Z")
		}
		terms.Deadline = at
		return nil
	})
	read(cloudv1.DelayPriceAnnotation, func(text string) error {
		price, wrong := strconv.ParseFloat(text, 64)
		if wrong != nil || !(price >= 0 && price <= mostDelayPrice) { // so that NaN is none
			return fmt.Errorf("want US dollars an hour from 0 to %.0f, as in 12.50", mostDelayPrice)
		}
		terms.DelayPrice = price
		return nil
	})
	read(cloudv1.CheckpointAnnotation, func(text string) error {
		every, wrong := time.ParseDuration(text)
		if wrong != nil || every < leastCheckpoint || every > mostCheckpoint {
			return errors.New("want a time from 1m to 720h, as in 30m")
		}
		terms.Checkpoint = every
		return nil
	})
	return terms, err
}

// unknownRunTime is assumed of workloads that do not declare one.
const unknownRunTime = time.Hour

// RunTime is how long a workload will run, as far as it says.
func RunTime(wl *kueue.Workload) (run time.Duration, declared bool) {
	if s := ptr.Deref(wl.Spec.MaximumExecutionTimeSeconds, 0); s > 0 {
		return time.Duration(s) * time.Second, true
	}
	return unknownRunTime, false
}

// mostInput is the largest input that is reckoned with, 1 EiB.
const mostInput = 1 << 30 // GiB

// InputOf reads where the input of a job or a workload lies, and how large it is. What cannot be read counts as not given, and is
// named in the error: it is never a reason not to run.
func InputOf(annotations map[string]string) (cloud.Input, error) {
	size, sized := annotations[cloudv1.InputSizeAnnotation]
	where, placed := annotations[cloudv1.InputRegionAnnotation]
	wrong := func(name, text, problem string) (cloud.Input, error) {
		if len(text) > longestTerm {
			text = text[:longestTerm] + "…"
		}
		return cloud.Input{}, &TermError{Annotation: name, Text: text, Problem: problem}
	}
	switch {
	case !sized && !placed:
		return cloud.Input{}, nil
	case !sized:
		return wrong(cloudv1.InputRegionAnnotation, where, "want "+cloudv1.InputSizeAnnotation+", too")
	case !placed:
		return wrong(cloudv1.InputSizeAnnotation, size, "want "+cloudv1.InputRegionAnnotation+", too")
	}
	in := cloud.Input{}
	if len(size) <= longestTerm {
		if bytes, err := resource.ParseQuantity(size); err == nil {
			in.GiB = bytes.AsApproximateFloat64() / (1 << 30)
		}
	}
	if !(in.GiB > 0 && in.GiB <= mostInput) {
		return wrong(cloudv1.InputSizeAnnotation, size, "want a size up to 1Ei, as in 500Gi")
	}
	in.Cloud, in.Region, _ = strings.Cut(where, "/")
	if in.Region == "" || len(where) > 2*longestTerm || !slices.Contains(cloud.Clouds, in.Cloud) {
		return wrong(cloudv1.InputRegionAnnotation, where, "want a cloud and its region, as in aws/us-east-1")
	}
	return in, nil
}

// TermError is an annotation that cannot be read.
type TermError struct{ Annotation, Text, Problem string }

func (e *TermError) Error() string {
	return fmt.Sprintf("annotation %s %q: %s", e.Annotation, e.Text, e.Problem)
}
