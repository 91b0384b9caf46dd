package gpu

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Filter says of each node whether it can take the pod; a *Refused is meant for all of them.
func (s *Shell) Filter(ctx context.Context, pod *corev1.Pod, names []string) ([]placement.Verdict, error) {
	if !s.Asks(pod) {
		// It has no business here: it fits as far as we know, and holds nothing.
		verdicts := make([]placement.Verdict, len(names))
		for i, name := range names {
			verdicts[i] = placement.Verdict{Node: name, Reason: placement.Fits}
		}
		return verdicts, s.Ready()
	}
	w, err := s.readRequest(ctx, pod)
	if refused := (*Refused)(nil); errors.As(err, &refused) && len(request.Uses(pod)) > 0 {
		// A claim that changes after the second look finds the pod among those refused, and requeues it.
		if err := s.doFor(ctx, pod, func() { s.refuse(pod) }); err != nil {
			return nil, err
		}
		w, err = s.readRequest(ctx, pod)
	}
	if err != nil {
		return nil, err
	}
	verdicts := make([]placement.Verdict, 0, len(names))
	var refused error
	err = s.doFor(ctx, pod, func() {
		if refused = s.reserveGang(w); refused == nil {
			verdicts, refused = s.engine.Filter(&w.ask, names, verdicts)
		}
		if refused == nil {
			refused = s.leaveTooFar(w, names, verdicts)
		}
		if !slices.ContainsFunc(verdicts, func(v placement.Verdict) bool { return v.Reason == placement.Fits }) {
			s.refuse(pod)
		}
	})
	if err == nil && refused != nil {
		err = &Refused{Reason: refused.Error()}
	}
	return verdicts, err
}

// Score rates the nodes from 0 to placement.MaxScore.
func (s *Shell) Score(ctx context.Context, pod *corev1.Pod, names []string) ([]int64, error) {
	w, err := s.readRequest(ctx, pod)
	if err != nil {
		return nil, err
	}
	scores := make([]int64, 0, len(names))
	if opinions := s.opinions(ctx, w, names); opinions != nil {
		for _, name := range names {
			scores = append(scores, opinions[name].Score)
		}
		return scores, nil
	}
	var refused error
	err = s.doFor(ctx, pod, func() {
		if scores, refused = s.engine.Score(&w.ask, names, scores); refused == nil {
			refused = s.preferNear(w, names, scores)
		}
	})
	if err != nil {
		return nil, err
	}
	return scores, refused
}

// Preempt says on which nodes the pod would fit if the victims there were gone.
func (s *Shell) Preempt(ctx context.Context, pod *corev1.Pod, victims map[string][]types.UID) (map[string]bool, error) {
	w, err := s.readRequest(ctx, pod)
	if err != nil {
		return nil, err
	}
	fits := map[string]bool{}
	err = s.doFor(ctx, pod, func() {
		keys := make(map[types.UID]string, len(s.pods))
		for key, t := range s.pods {
			keys[t.uid] = key
		}
		for node, uids := range victims {
			fits[node] = s.fitsWithout(w, node, uids, keys)
		}
	})
	return fits, err
}

func (s *Shell) fitsWithout(w *podRequest, node string, victims []types.UID, keys map[types.UID]string) bool {
	txn := s.engine.Begin()
	defer txn.Rollback()
	for _, uid := range victims {
		txn.Remove(keys[uid])
	}
	verdicts, err := s.engine.Filter(&w.ask, []string{node}, nil)
	if err == nil {
		err = s.leaveTooFar(w, []string{node}, verdicts)
	}
	return err == nil && verdicts[0].Reason == placement.Fits
}

// CacheBehind says whether the cache has a pod that is not among those that exist, as kube-scheduler
// knows them: its end has yet to be reported to us, and there is more free capacity than we count.
func (s *Shell) CacheBehind(ctx context.Context, exist map[types.UID]bool) (behind bool, err error) {
	err = s.do(ctx, func() {
		for _, t := range s.pods {
			behind = behind || !exist[t.uid]
		}
	})
	return behind, err
}
