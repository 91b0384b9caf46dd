package workload

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
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

// TermError is an annotation that cannot be read.
type TermError struct{ Annotation, Text, Problem string }

func (e *TermError) Error() string {
	return fmt.Sprintf("annotation %s %q: %s", e.Annotation, e.Text, e.Problem)
}
