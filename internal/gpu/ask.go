package gpu

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/claims"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Refused is the answer to a pod that no node can take, for a reason that is not the nodes'.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// want is a pod with all that the API says about its wishes.
type want struct {
	pod  *corev1.Pod
	ask  placement.Pod // what to look for a place for, claims without a device included
	gang gang
	all  *placement.Gang // the gang's pods, where there are several
	// has are the devices of bound claims, by container; lacks are the claims that get theirs on
	// the node the pod goes to.
	has   []held
	lacks []lacking
}

type held struct {
	container string
	device    *egpu.ElasticGPU
}

type lacking struct {
	container string
	claim     *egpu.ElasticGPUClaim
	class     *egpu.ElasticGPUClass
	cards     placement.CardRequest
}

// Asks says whether a pod wants cards, by itself or by a claim. What it writes may still be wrong.
func (s *Shell) Asks(pod *corev1.Pod) bool {
	ask, err := request.Pod(pod, s.options.Modes)
	return err != nil || len(ask.Containers) > 0 || len(request.Uses(pod)) > 0
}

// wantOf reads everything a pod's place depends on. A *Refused says why it cannot have one now.
func (s *Shell) wantOf(ctx context.Context, pod *corev1.Pod) (*want, error) {
	w := &want{pod: pod, gang: gangOf(pod)}
	var err error
	if w.ask, err = request.Pod(pod, s.options.Modes); err != nil {
		return nil, &Refused{Reason: err.Error()}
	}
	w.gang.tie(&w.ask)
	for _, use := range request.Uses(pod) {
		if err := s.use(ctx, w, use); err != nil {
			return nil, err
		}
	}
	if w.gang.key != "" {
		if w.all, err = s.whole(ctx, w.gang, w.ask); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// use of a claim by the pod: where its device is, or what it asks of the node.
func (s *Shell) use(ctx context.Context, w *want, use request.Use) error {
	refuse := func(format string, args ...any) error {
		return &Refused{Reason: fmt.Sprintf("claim %s: ", use.Claim) + fmt.Sprintf(format, args...)}
	}
	if slices.ContainsFunc(w.ask.Containers, func(c placement.Container) bool { return c.Name == use.Container }) {
		return refuse("container %s asks for cards itself: use the claim or the resources, not both", use.Container)
	}
	claim := &egpu.ElasticGPUClaim{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Namespace: w.pod.Namespace, Name: use.Claim}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return refuse("there is none of that name in namespace %s", w.pod.Namespace)
	case err != nil:
		return err
	case claim.DeletionTimestamp != nil:
		return refuse("it is being deleted")
	}
	if claim.Status.Phase == egpu.ClaimBound {
		device := &egpu.ElasticGPU{}
		if err := s.options.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.ElasticGPUName}, device); err != nil {
			if apierrors.IsNotFound(err) {
				return refuse("its ElasticGPU %s is gone", claim.Spec.ElasticGPUName)
			}
			return err
		}
		w.has = append(w.has, held{use.Container, device})
		if affinity := device.Spec.NodeAffinity; affinity != nil {
			w.ask.Affinity = both(w.ask.Affinity, request.Terms(affinity.Required))
		}
		return nil
	}
	class := &egpu.ElasticGPUClass{}
	if name := claim.ClassName(); name != "" {
		if err := s.options.Client.Get(ctx, client.ObjectKey{Name: name}, class); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if class.EGPUBindingMode != egpu.BindWaitForFirstConsumer {
		return refuse("it has no ElasticGPU yet: %s", claim.Status.Message)
	}
	if slices.ContainsFunc(w.lacks, func(l lacking) bool { return l.claim.Name == claim.Name }) {
		return nil
	}
	cards, err := claims.Cards(claim, class)
	if err != nil {
		return refuse("%v", err)
	}
	w.lacks = append(w.lacks, lacking{use.Container, claim, class, cards})
	if claims.InTree(class.Provisioner) {
		w.ask.Containers = append(w.ask.Containers, placement.Container{Name: egpu.ClaimPrefix + claim.Name, Cards: cards})
	}
	return nil
}

// both lists of terms must hold, any term of each.
func both(a, b []placement.Term) []placement.Term {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b)
	}
	var out []placement.Term
	for _, x := range a {
		for _, y := range b {
			out = append(out, slices.Concat(x, y))
		}
	}
	return out
}

// Filter says of each node whether it can take the pod; a *Refused is meant for all of them.
func (s *Shell) Filter(ctx context.Context, pod *corev1.Pod, names []string) ([]placement.Verdict, error) {
	w, err := s.wantOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	verdicts := make([]placement.Verdict, 0, len(names))
	var refused error
	err = s.do(ctx, func() {
		if refused = s.together(w.all); refused == nil {
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
	w, err := s.wantOf(ctx, pod)
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

// Preempt says on which nodes the pod would fit if the victims there went.
func (s *Shell) Preempt(ctx context.Context, pod *corev1.Pod, victims map[string][]types.UID) (map[string]bool, error) {
	w, err := s.wantOf(ctx, pod)
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

// Unheard says whether a pod on the books is not among those that exist, as somebody else knows: we
// have yet to hear of its end, and there is more room than we think.
func (s *Shell) Unheard(ctx context.Context, exist map[types.UID]bool) (unheard bool, err error) {
	err = s.do(ctx, func() {
		for _, t := range s.pods {
			unheard = unheard || !exist[t.uid]
		}
	})
	return unheard, err
}
