package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// How often containers are looked at that may be idle: those that have left their cards wait for the next look with a
// kernel in hand.
const (
	idlePoll = time.Second
	awayPoll = 200 * time.Millisecond
	// recordWait is how long a pod that comes back waits in one look for the scheduler to enter it.
	recordWait = 5 * time.Second
)

// IdleWatch moves containers off their cards that do not use them, after the time that their class gives them, and back at
// their next kernel. Nobody says so but their processes: one that lies moves itself alone, and no more often than its
// class says. It is for shares by ElasticGPUClaims, which have a class, and leaves pods alone that are told where to be.
//
// The state is in the pod's condition SwappedOut and in the processes, so that an agent that starts goes on from there.
type IdleWatch struct {
	Swapper   *Swapper
	Processes func(ctx context.Context, s *share.Share) ([]gpushare.Process, error)
	Log       logr.Logger
	// Now is the clock; time.Now where it is nil.
	Now func() time.Time

	mu      sync.Mutex
	looking map[types.UID]bool      // pods that are being looked at, or moved
	stay    map[types.UID]time.Time // pods that stay on their cards at least until then
	away    map[types.UID]bool      // pods that have left
}

// Start watches until ctx ends.
func (w *IdleWatch) Start(ctx context.Context) error {
	for pause := idlePoll; ; pause = w.pause() {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if _, err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.Log.Error(err, "reading what containers have")
		}
	}
}

func (w *IdleWatch) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.away) > 0 {
		return awayPoll
	}
	return idlePoll
}

// Look at all pods once, each by itself: one that takes its time keeps no other waiting. done waits for all.
func (w *IdleWatch) Look(ctx context.Context) (done func(), err error) {
	grants, err := w.Swapper.Grants()
	if err != nil {
		return func() {}, err
	}
	of := map[types.UID][]slots.Grant{}
	for _, g := range grants {
		of[g.UID] = append(of[g.UID], g)
	}
	w.forget(of)
	var all sync.WaitGroup
	for uid, mine := range of {
		after := idleAfter(mine)
		if after == 0 || !w.begin(uid) {
			continue
		}
		all.Go(func() {
			defer w.end(uid)
			err := panics.Contain(w.Log, "idle", mine[0].Pod.String(), func() error { return w.look(ctx, uid, mine, after) })
			if err != nil && !panics.Is(err) && ctx.Err() == nil {
				w.Log.Error(err, "a container that may be idle", "pod", mine[0].Pod.String())
			}
		})
	}
	return all.Wait, nil
}

// idleAfter is when a pod is idle: the longest time that one of its containers has; 0 if one is never.
func idleAfter(grants []slots.Grant) time.Duration {
	var longest time.Duration
	for i := range grants {
		after, err := grants[i].IdleAfter()
		if err != nil || after == 0 || grants[i].Device == "" || grants[i].Backend != "gpushare" {
			return 0
		}
		longest = max(longest, after)
	}
	return longest
}

// forget what is known of pods that are gone.
func (w *IdleWatch) forget(there map[types.UID][]slots.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.away, func(uid types.UID, _ bool) bool { return there[uid] == nil })
	maps.DeleteFunc(w.stay, func(uid types.UID, _ time.Time) bool { return there[uid] == nil })
}

// begin to look at a pod, unless another look has not ended.
func (w *IdleWatch) begin(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking == nil {
		w.looking, w.stay, w.away = map[types.UID]bool{}, map[types.UID]time.Time{}, map[types.UID]bool{}
	}
	was := w.looking[uid]
	w.looking[uid] = true
	return !was
}

func (w *IdleWatch) end(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.looking, uid)
}

func (w *IdleWatch) setAway(uid types.UID, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.away, uid); away {
		w.away[uid] = true
	}
}

// hold a pod on its cards for a while.
func (w *IdleWatch) hold(uid types.UID, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stay[uid] = w.now().Add(pause)
}

func (w *IdleWatch) held(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now().Before(w.stay[uid])
}

func (w *IdleWatch) now() time.Time {
	if w.Now != nil {
		return w.Now()
	}
	return time.Now()
}

// look at one pod, and move it where it should be.
func (w *IdleWatch) look(ctx context.Context, uid types.UID, mine []slots.Grant, after time.Duration) error {
	pod := &corev1.Pod{}
	if err := w.Swapper.Client.Get(ctx, mine[0].Pod, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pod.UID != uid || pod.Annotations[egpu.SwapAnnotation] != "" || pod.Status.Phase != corev1.PodRunning {
		w.setAway(uid, false)
		return nil
	}
	out := reported(pod) == corev1.ConditionTrue
	if out && egpu.SwapCondition(pod).Reason == egpu.ReasonIdle {
		// Others have what it had: whatever its processes say, the driver is asked.
		if err := w.Swapper.confirmOut(ctx, mine); err != nil {
			return w.stays(ctx, pod, mine, after, err)
		}
	}
	now, known := w.state(ctx, mine)
	if !known {
		return nil // it may be busy with what we do not know
	}
	w.setAway(uid, out || now.out)
	switch {
	case out && now.out && !now.wanted && egpu.SwapCondition(pod).Reason == egpu.ReasonIdle:
		return nil
	case out || now.out: // also one that an agent before us moved, and could not say so
		if err := w.bringBack(ctx, pod, mine); err != nil {
			return err
		}
		w.hold(uid, after)
		return nil
	case now.idle < after || now.bytes == 0 || w.held(uid):
		return nil
	}
	return w.moveOut(ctx, pod, mine, after)
}

// use that a pod makes of its cards, as its processes say.
type use struct {
	idle        time.Duration // of the one that used its card last
	bytes       int64         // on cards
	out, wanted bool
}

// state of a pod; known is false where a process does not say, and where none has used a card yet.
func (w *IdleWatch) state(ctx context.Context, mine []slots.Grant) (now use, known bool) {
	for i := range mine {
		processes, err := w.Processes(ctx, &mine[i].Share)
		if err != nil {
			return now, false
		}
		for _, p := range processes {
			if p.Silent {
				return now, false
			}
			idle := min(time.Duration(p.IdleNS), p.Age)
			if !known || idle < now.idle {
				now.idle = idle
			}
			known = true
			var bytes int64
			for _, d := range p.Devices {
				bytes += max(d.Held-d.Swapped, 0)
			}
			now.bytes += bytes
			now.out, now.wanted = now.out || p.Out, now.wanted || p.Wanted || !p.Out && bytes > 0 // also one that came later
		}
	}
	return now, known
}

// moveOut a pod that does not use its cards. What cannot be moved is tried again later.
func (w *IdleWatch) moveOut(ctx context.Context, pod *corev1.Pod, mine []slots.Grant, after time.Duration) error {
	s := w.Swapper
	bytes, _, err := moveAll(ctx, mine, s.Shares.Out, s.Shares.In)
	if err == nil {
		if err = s.confirmOut(ctx, mine); err != nil {
			return w.stays(ctx, pod, mine, after, err)
		}
	}
	if err != nil {
		return w.stays(ctx, pod, nil, after, err)
	}
	w.setAway(pod.UID, true)
	message := fmt.Sprintf("%d MiB of %d containers, which did not use their cards for %s", bytes>>20, len(mine), after)
	w.event(pod, "SwappedOut", message)
	return s.report(ctx, pod, corev1.ConditionTrue, egpu.ReasonIdle, message)
}

// stays says that a pod has its cards, and why; what of it has left them comes back. It is left alone for a while.
func (w *IdleWatch) stays(ctx context.Context, pod *corev1.Pod, left []slots.Grant, after time.Duration, why error) error {
	w.setAway(pod.UID, false)
	w.hold(pod.UID, max(after, retryPeriod))
	why = errors.Join(why, moveBack(ctx, left, w.Swapper.Shares.In))
	return w.Swapper.report(ctx, pod, corev1.ConditionFalse, egpu.ReasonCannotMoveOut, "it is idle: "+why.Error())
}

// bringBack a pod that wants its cards again. From when that is said on they count as its own; while others have what it
// had, it waits.
func (w *IdleWatch) bringBack(ctx context.Context, pod *corev1.Pod, mine []slots.Grant) error {
	s := w.Swapper
	if said := egpu.SwapCondition(pod); reported(pod) == corev1.ConditionTrue && said.Reason == egpu.ReasonIdle {
		if err := s.report(ctx, pod, corev1.ConditionTrue, egpu.ReasonReturning, "it uses its cards again"); err != nil {
			return err
		}
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
	}
	var full string
	err := wait.PollUntilContextTimeout(ctx, recordPoll, recordWait, true, func(ctx context.Context) (known bool, err error) {
		known, full, err = s.canReturn(ctx, pod, mine)
		return known, err
	})
	if err == nil && full != "" {
		err = errors.New(full)
	}
	var bytes int64
	if err == nil {
		var silent error
		bytes, silent, err = moveAll(ctx, mine, s.Shares.In, nil)
		err = errors.Join(err, silent)
	}
	if err != nil {
		return w.waits(ctx, pod, err)
	}
	w.setAway(pod.UID, false)
	message := fmt.Sprintf("%d MiB of %d containers", bytes>>20, len(mine))
	w.event(pod, "SwappedIn", message)
	return s.report(ctx, pod, corev1.ConditionFalse, egpu.ReasonMovedIn, message)
}

// waits says for what a pod waits that wants its cards, when that is news.
func (w *IdleWatch) waits(ctx context.Context, pod *corev1.Pod, why error) error {
	said := egpu.SwapCondition(pod)
	if ctx.Err() != nil || said != nil && said.Reason == egpu.ReasonReturning && said.Message == why.Error() {
		return ctx.Err()
	}
	return w.Swapper.report(ctx, pod, corev1.ConditionTrue, egpu.ReasonReturning, why.Error())
}

func (w *IdleWatch) event(pod *corev1.Pod, reason, message string) {
	if w.Swapper.Events != nil {
		w.Swapper.Events.Eventf(pod, nil, corev1.EventTypeNormal, reason, "Swap", "%s", message)
	}
}
