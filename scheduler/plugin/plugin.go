package plugin

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Name of the plugin in kube-scheduler's configuration.
const Name = "ElasticGPU"

// Plugin answers kube-scheduler from the cache of a Shell.
type Plugin struct {
	shell  *gpu.Shell
	handle fwk.Handle
}

var _ interface {
	fwk.PreFilterPlugin
	fwk.PreFilterExtensions
	fwk.FilterPlugin
	fwk.PostFilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.ReservePlugin
	fwk.BindPlugin
	fwk.EnqueueExtensions
} = (*Plugin)(nil)

// Factory registers the plugin under its Name.
func Factory(shell *gpu.Shell) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return &Plugin{shell, handle}, nil
	}
}

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister: capacity comes with nodes and is freed by pods. After what kube-scheduler does not know
// of, such as a card that recovers, the Shell changes a label of the pods that were refused.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint}},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodLabel}},
	}, nil
}

const (
	verdictsKey    fwk.StateKey = Name + "/verdicts"
	scoresKey      fwk.StateKey = Name + "/scores"
	reservationKey fwk.StateKey = Name + "/reservation"
)

// verdicts on all nodes, and which pods are assumed to be gone from them.
type verdicts struct {
	nodes   map[string]placement.Reason
	removed map[string][]types.UID
}

// Clone shares what does not change.
func (v *verdicts) Clone() fwk.StateData {
	c := &verdicts{nodes: v.nodes, removed: make(map[string][]types.UID, len(v.removed))}
	for node, uids := range v.removed {
		c.removed[node] = slices.Clone(uids)
	}
	return c
}

type scores map[string]int64

func (s scores) Clone() fwk.StateData { return s }

type reservation struct{ *gpu.Reservation }

func (r reservation) Clone() fwk.StateData { return r }

// PreFilter asks about all nodes at once.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.shell.Asks(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	answers, err := p.shell.Filter(ctx, pod, names(nodes))
	if err != nil {
		return nil, refusal(err)
	}
	v := &verdicts{nodes: make(map[string]placement.Reason, len(answers)), removed: map[string][]types.UID{}}
	for _, a := range answers {
		v.nodes[a.Node] = a.Reason
	}
	state.Write(verdictsKey, v)
	return nil, nil
}

// refusal is what is wrong with the pod; anything else went wrong here.
func refusal(err error) *fwk.Status {
	var refused *gpu.Refused
	if errors.As(err, &refused) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, refused.Reason)
	}
	return fwk.AsStatus(err)
}

func names(nodes []fwk.NodeInfo) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		if n.Node() != nil {
			list = append(list, n.Node().Name)
		}
	}
	return list
}

// PreFilterExtensions are asked while victims of a preemption are looked for.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod puts a pod back that RemovePod took away.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, pod fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	v, err := read[*verdicts](state, verdictsKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	name := node.Node().Name
	v.removed[name] = slices.DeleteFunc(v.removed[name], func(uid types.UID) bool { return uid == pod.GetPod().UID })
	return nil
}

// RemovePod assumes that a pod is gone.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, pod fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	v, err := read[*verdicts](state, verdictsKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	name := node.Node().Name
	v.removed[name] = append(v.removed[name], pod.GetPod().UID)
	return nil
}

// Filter looks up PreFilter's answer, or asks again where pods are assumed to be gone.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	v, err := read[*verdicts](state, verdictsKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := info.Node().Name
	reason, known := v.nodes[node]
	if !known {
		reason = placement.NodeUnknown
	}
	// Once pods were taken away it is asked afresh, even if all have been put back: the answer may have
	// changed since PreFilter, and a victim must be one that is needed now.
	if victims, asked := v.removed[node]; asked {
		fits, err := p.shell.Preempt(ctx, pod, map[string][]types.UID{node: victims})
		if err != nil {
			return refusal(err)
		}
		if fits[node] {
			return nil
		}
		if reason == placement.Fits {
			reason = placement.FewCards
		}
	}
	switch {
	case reason == placement.Fits:
		return nil
	case reason.HelpedByPreemption():
		return fwk.NewStatus(fwk.Unschedulable, reason.String())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason.String())
}

// PostFilter prevents preemption while our cache is behind kube-scheduler's: the pod in the way may just
// have gone. The Shell requeues the pod when its watch reports that.
func (p *Plugin) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if !p.shell.Asks(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	exist := map[types.UID]bool{}
	for _, node := range nodes {
		for _, other := range node.GetPods() {
			exist[other.GetPod().UID] = true
		}
	}
	behind, err := p.shell.CacheBehind(ctx, exist)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if behind {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "a pod that had cards has just gone")
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// PreScore asks about the nodes that are left, at once.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if !p.shell.Asks(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	list := names(nodes)
	answers, err := p.shell.Score(ctx, pod, list)
	if err != nil {
		return refusal(err)
	}
	rated := make(scores, len(list))
	for i, name := range list {
		rated[name] = answers[i] * fwk.MaxNodeScore / placement.MaxScore
	}
	state.Write(scoresKey, rated)
	return nil
}

// Score looks up PreScore's answer.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	rated, err := read[scores](state, scoresKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return rated[node.Node().Name], nil
}

// ScoreExtensions are none: scores are from 0 to fwk.MaxNodeScore as they are.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve the cards.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if !p.shell.Asks(pod) {
		return nil
	}
	r, err := p.shell.ReservePod(ctx, pod, node)
	if err != nil {
		return refusal(err)
	}
	state.Write(reservationKey, reservation{r})
	return nil
}

// Unreserve releases them.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	if r, err := read[reservation](state, reservationKey); err == nil {
		_ = r.Release() // fails only when the program ends, and the cache with it
		state.Delete(reservationKey)
	}
}

// Bind writes the binding with the cards in it.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) *fwk.Status {
	r, err := read[reservation](state, reservationKey)
	if errors.Is(err, fwk.ErrNotFound) {
		return fwk.NewStatus(fwk.Skip) // a pod without cards
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	return fwk.AsStatus(r.Bind(ctx))
}

func read[T fwk.StateData](state fwk.CycleState, key fwk.StateKey) (value T, err error) {
	data, err := state.Read(key)
	if err != nil {
		return value, err
	}
	return data.(T), nil
}
