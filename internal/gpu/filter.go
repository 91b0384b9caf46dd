package gpu

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/placement"
)

// Filter says of each node whether it can take the pod; a *Refused is meant for all of them.
func (s *Shell) Filter(ctx context.Context, pod *corev1.Pod, names []string) ([]placement.Verdict, error) {
	w, err := s.readRequest(ctx, pod)
	if err != nil {
		return nil, err
	}
	verdicts := make([]placement.Verdict, 0, len(names))
	var refused error
	err = s.do(ctx, func() {
		if refused = s.reserveGang(w.all); refused == nil {
			verdicts, refused = s.engine.Filter(&w.ask, names, verdicts)
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
	if err := s.do(ctx, func() { scores, refused = s.engine.Score(&w.ask, names, scores) }); err != nil {
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
	err = s.do(ctx, func() {
		keys := make(map[types.UID]string, len(s.pods))
		for key, t := range s.pods {
			keys[t.uid] = key
		}
		for node, uids := range victims {
			txn := s.engine.Begin()
			for _, uid := range uids {
				txn.Remove(keys[uid])
			}
			verdicts, err := s.engine.Filter(&w.ask, []string{node}, nil)
			fits[node] = err == nil && verdicts[0].Reason == placement.Fits
			txn.Rollback()
		}
	})
	return fits, err
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
