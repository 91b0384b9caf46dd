package faults

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/elastic-ai/elastic/internal/program"
)

const (
	leaseSeconds = 15
	// retryPeriod is no whole number of milliseconds, so that no other timer fires in the same moment.
	retryPeriod = 2*time.Second + 7*time.Microsecond
)

// lease of a role, as a process writes it that leads.
type lease struct {
	resourcelock.Interface // what is not used is missing
	process                *process
}

// Update implements resourcelock.Interface. Of a process that was cut off nothing arrives.
func (l *lease) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	w := l.process.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.process.cutOff {
		return errors.New("cut off")
	}
	w.leases[l.process.role] = time.Now().Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
	return nil
}

// leaseIsFree says that a process of a role may lead.
func (w *World) leaseIsFree(role string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.leases[role])
}

// lead has a process take the lease and renew it. What it writes passes the fence that the programs have.
func (w *World) lead(p *process) {
	p.fence = program.NewFence()
	lock := p.fence.Lock(&lease{process: p})
	renew := func() {
		_ = lock.Update(p.ctx, resourcelock.LeaderElectionRecord{HolderIdentity: p.name, LeaseDurationSeconds: leaseSeconds})
	}
	renew()
	p.group.Go(func() {
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(retryPeriod):
				renew()
			}
		}
	})
}
