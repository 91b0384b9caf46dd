package main

import "fmt"

func runOurs(w *work, asks asking) (run1, error) {
	o := newOurs(w, asks)
	rec := &recording{side: o}
	r, err := runSide(w, rec, &rec.log)
	if err == nil && r.early > 0 {
		err = fmt.Errorf("%s: elastic admitted %d workloads onto quota still held by others", w.name, r.early)
	}
	return r, err
}

func runKueue(w *work) (run1, error) {
	k, err := newKueue(w)
	if err != nil {
		return run1{}, err
	}
	rec := &recording{side: k}
	r, err := runSide(w, rec, &rec.log)
	r.cost = r.cost.minus(k.harness).minus(k.admissionWrites)
	r.writes = k.admissionWrites
	return r, err
}

// runSide measures a run, and then what the harness took in it.
func runSide(w *work, s side, log *replay) (r run1, err error) {
	total, err := measure(func() (err error) { r.outcome, err = drive(w, s); return err })
	if err != nil {
		return r, err
	}
	again := *log
	harness, err := measure(func() error { _, err := drive(w, &again); return err })
	r.cost = total.minus(harness)
	return r, err
}
