package world

import (
	"cmp"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/policy"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// learned is how long jobs are taken to run that do not say so: what a QueuePolicy says is learned, or its default. It is
// learned by the code of elastic-queue, from jobs that ended in the simulation, or in the cluster before.
type learned struct {
	times   engineview.RunTimes
	tree    *policy.Resolved
	of      map[admission.Key]estimate
	running map[int]admission.Workload // as the engine was told of them
}

// estimate is what policies say at a LocalQueue.
type estimate struct {
	percent   int
	byDefault time.Duration
}

// newLearned of the cluster; nil if no policy says how long jobs run.
func (c *Cluster) newLearned() *learned {
	for _, p := range c.QueuePolicies {
		if b := p.Spec.Backfill; b != nil && (b.RunTime != nil || b.Quantile != nil) {
			return c.learn(&learned{tree: policy.Resolve(c.QueuePolicies, c.tree()), of: map[admission.Key]estimate{}, running: map[int]admission.Workload{}})
		}
	}
	return nil
}

// learn from what has ended in the cluster before.
func (c *Cluster) learn(l *learned) *learned {
	for _, wl := range c.Ended {
		w := workload.ForEngine(wl, nil)
		l.times.Learn(&w, workload.RanFor(wl), l.at(&w).percent)
	}
	return l
}

// at a workload's LocalQueue, what policies say.
func (l *learned) at(w *admission.Workload) estimate {
	key := admission.Key{Namespace: w.Namespace, Name: w.LocalQueue}
	e, known := l.of[key]
	if !known {
		settings := l.tree.LocalQueue(namespaced(key))
		if key.Namespace == namespace {
			settings = l.tree.ClusterQueue(key.Name) // it is named as its ClusterQueue
		}
		e.percent, e.byDefault = engineview.RunTimesIn(settings)
		l.of[key] = e
	}
	return e
}

// expected is how long a job is taken to run; 0: nobody knows.
func (l *learned) expected(w *admission.Workload) time.Duration {
	if l == nil {
		return 0
	}
	e := l.at(w)
	return cmp.Or(l.times.Quantile(w, e.percent), e.byDefault)
}

// submitted notes a job that what is learned may concern.
func (l *learned) submitted(w *World, i int) {
	if l != nil {
		wl := w.workload(i)
		l.times.Learn(&wl, 0, l.at(&wl).percent)
	}
}

// started notes what the engine knows of a job that runs.
func (l *learned) started(i int, wl *admission.Workload) {
	if l != nil {
		l.running[i] = *wl
	}
}

func (l *learned) stopped(i int) {
	if l != nil {
		delete(l.running, i)
	}
}

// ended learns how long a job ran, if it succeeded, and tells the engine of those like it if more is known of them now.
func (l *learned) ended(w *World, i int, succeeds bool) {
	if l == nil {
		return
	}
	wl, ran := w.workload(i), time.Duration(0)
	if wl.Finished = true; succeeds {
		ran = time.Duration(w.jobs[i].ran) * time.Second
	}
	for _, key := range l.times.Learn(&wl, ran, l.at(&wl).percent) {
		other := JobOf(key)
		next, runs := l.running[other]
		if !runs {
			next = w.workload(other)
		}
		next.ExpectedRunTime = l.expected(&next)
		w.engine.Apply(admission.WorkloadChanged{Workload: next})
	}
}
