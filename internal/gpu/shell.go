package gpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Shell owns the placement engine and answers for it. Make it with New and hand it to a manager.
type Shell struct {
	options Options
	inbox   *inbox.Box[message]
	ready   chan struct{} // closed when the cache is complete
	leads   chan struct{} // closed when this replica leads with a complete cache
	ended   chan struct{} // closed when the loop is over
	publish chan struct{} // allocations changed

	// What follows belongs to the loop.
	engine  *placement.Engine
	nodes   *inventory.Nodes
	pods    map[string]*tracked
	devices map[string]string    // ElasticGPUs in the engine, each as it was applied
	claimed map[string]*claimUse // by claim, as namespace/name
	// serversOut are the ElasticGPUs on cards of other nodes, by name, whose servers have left them.
	serversOut map[string]bool
	unplaced   map[string]*egpu.ElasticGPU  // those whose cards are not known
	strays     map[string]map[string]*stray // by node and key
	gangs      map[string]int               // bound pods by gang
	reserved   map[string]time.Time         // gangs with reservations, until when
	binding    map[string]*binding
	attempts   map[string]attempt           // binds that failed, by pod
	refused    map[client.ObjectKey]refusal // pods that no node could take
	changed    map[string]bool              // nodes whose allocations differ from what was published
	aside      map[string]aside             // objects that met a defect, as they were
	faults     func(stage string, object client.Object)
	// listed is the version of the pods that this leader read when it took over, 0 before: what a watch delivers from
	// before it is out of date. endedMeanwhile are pods that went while they were read; nil at other times.
	listed         uint64
	endedMeanwhile map[types.UID]bool
	// believeUntil is when a leader stops to take annotations for an earlier leader's word.
	believeUntil time.Time

	// Refused pods are about to be requeued, all of them or the latest; how often that was.
	requeueing, requeueAll bool
	requeues               int
}

// Options of New.
type Options struct {
	// Client reads from the cache and writes; Direct reads from the API server.
	Client client.Client
	Direct client.Reader
	Cache  cache.Cache
	Engine placement.Options
	Modes  request.Modes
	// Hooks are policies that are asked for over HTTP, by the names by which pods choose them. Each is
	// also one of Engine.Policies: what decides while the hook does not answer.
	Hooks map[string]*Hook
	// Hold is how long a gang's reservation lasts.
	Hold time.Duration
	// Queue says that Workloads can be read, so that the pods of a job are placed together.
	Queue bool
	// ServerNamespace is where pods serve cards to other nodes; no tenant makes pods there.
	ServerNamespace string
	Now             func() time.Time
	Log             logr.Logger
	// Events warn who has an object; nil for none.
	Events events.EventRecorder
}

// New makes a Shell; the error is about the engine's options.
func New(options Options) (*Shell, error) {
	engine, err := placement.New(options.Engine)
	if err != nil {
		return nil, err
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Shell{
		options: options, engine: engine, inbox: inbox.New(about),
		ready: make(chan struct{}), leads: make(chan struct{}), ended: make(chan struct{}), publish: make(chan struct{}, 1),
		nodes: inventory.NewNodes(describeNode), pods: map[string]*tracked{},
		devices: map[string]string{}, claimed: map[string]*claimUse{}, serversOut: map[string]bool{}, unplaced: map[string]*egpu.ElasticGPU{}, strays: map[string]map[string]*stray{},
		gangs: map[string]int{}, reserved: map[string]time.Time{}, binding: map[string]*binding{}, attempts: map[string]attempt{}, aside: map[string]aside{}, refused: map[client.ObjectKey]refusal{}, changed: map[string]bool{},
	}, nil
}

// NeedLeaderElection is false: every replica has the cache.
func (s *Shell) NeedLeaderElection() bool { return false }

// Start runs until ctx ends.
func (s *Shell) Start(ctx context.Context) error {
	kinds := []client.Object{&corev1.Node{}, &corev1.Pod{}, &egpu.GPU{}, &egpu.ElasticGPU{}, &egpu.ElasticGPUClaim{}}
	if s.options.Queue {
		kinds = append(kinds, &kueue.Workload{})
	}
	complete, err := s.inbox.Watch(ctx, s.options.Cache, changed, kinds...)
	if err != nil {
		return err
	}
	if !complete {
		return nil // stopped before the first list of all objects was complete
	}
	s.ask(func() { close(s.ready) })
	s.loop(ctx)
	return nil
}

// expireEvery is how often reservations for pods that never came are looked for.
const expireEvery = 5 * time.Second

func (s *Shell) loop(ctx context.Context) {
	defer close(s.ended)
	ticker := time.NewTicker(expireEvery)
	defer ticker.Stop()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				s.ask(s.expire)
			}
		}
	}()
	for {
		messages, err := s.inbox.Take(ctx, time.Time{})
		if err != nil {
			return
		}
		inOrder(messages)
		for _, m := range messages {
			s.handleSafely(m)
		}
	}
}

func (s *Shell) expire() {
	for gang, until := range s.reserved {
		if !until.After(s.options.Now()) {
			delete(s.reserved, gang)
		}
	}
	if keys := s.engine.Expire(s.options.Now()); len(keys) > 0 {
		s.options.Log.Info("reservations of pods that did not come have expired", "reservations", keys)
		s.requeue(true)
	}
}

func (s *Shell) handle(m message) {
	if m.ask != nil {
		m.ask()
		return
	}
	switch o := m.object.(type) {
	case *corev1.Node:
		s.sawNode(o, m.gone)
	case *corev1.Pod:
		s.sawPod(o, m.gone)
	case *egpu.GPU:
		s.sawGPU(o, m.gone)
	case *egpu.ElasticGPU:
		s.sawElasticGPU(o, m.gone)
	case *egpu.ElasticGPUClaim:
		s.sawClaim(o)
	case *kueue.Workload:
		s.sawWorkload(o, m.gone)
	}
}

// apply an event to the engine; what it cannot make sense of is logged and left out.
func (s *Shell) apply(event placement.Event) bool {
	err := s.engine.Apply(event)
	if err != nil {
		s.options.Log.Error(err, "the cluster says what makes no sense", "event", fmt.Sprintf("%T", event))
	}
	return err == nil
}

// ErrNotReady is the answer of a shell whose cache is not complete.
var ErrNotReady = errors.New("the cache is not complete yet")

// ErrEnded is the answer of a shell that has stopped.
var ErrEnded = errors.New("the program is ending")

// do has the loop run f, and waits for it.
func (s *Shell) do(ctx context.Context, f func()) error { return s.doFor(ctx, nil, f) }

// doFor is do, for a question about an object. A panic is the answer, as an error.
func (s *Shell) doFor(ctx context.Context, object client.Object, f func()) error {
	select {
	case <-s.ready:
	default:
		return ErrNotReady
	}
	done := make(chan error, 1)
	s.ask(func() { done <- s.guard(stageAsk, object, f) })
	select {
	case err := <-done:
		return err
	case <-s.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ready says why questions cannot be answered yet, or nil.
func (s *Shell) Ready() error {
	select {
	case <-s.ready:
		return nil
	default:
		return ErrNotReady
	}
}

// Lead takes over: what an earlier leader bound and our watch has yet to deliver, and which pods are gone that it
// still has, is read from the API server itself. It is for a leader, once.
func (s *Shell) Lead(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil
	}
	if err := s.do(ctx, func() { s.endedMeanwhile = map[types.UID]bool{} }); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := s.options.Direct.List(ctx, pods); err != nil {
		return fmt.Errorf("reading all pods: %w", err)
	}
	err := s.do(ctx, func() {
		s.takeOver(pods)
		s.lead()
	})
	if err == nil {
		s.options.Log.Info("leading", "pods", len(pods.Items))
	}
	return err
}

// takeOver has the pods that are listed, and no others. Those that have ended leave first: what they had may be
// another's by now. Which cards a pod has that was only guessed is found out again, without them.
func (s *Shell) takeOver(pods *corev1.PodList) {
	exist := make(map[types.UID]bool, len(pods.Items))
	for i := range pods.Items {
		pod := &pods.Items[i]
		exist[pod.UID] = !finished(pod) && !s.endedMeanwhile[pod.UID]
	}
	s.endedMeanwhile = nil
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		if t := s.pods[key]; (!exist[t.uid] || t.guessed) && t.version <= version(pods.ResourceVersion) {
			s.lost(key, t.uid)
			s.lostUses(t.uid)
		}
	}
	for i := range pods.Items {
		if exist[pods.Items[i].UID] {
			s.handleSafely(changed(&pods.Items[i], false))
		}
	}
	s.listed = version(pods.ResourceVersion)
}

// version of an object or a list, as a number that grows with each change; 0 where it is none.
func version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s *Shell) lead() {
	s.believeUntil = s.options.Now().Add(believeFor)
	close(s.leads)
}

// Leading is closed when this replica leads and its cache is complete.
func (s *Shell) Leading() <-chan struct{} { return s.leads }

// Leads says whether this replica is the leader and its cache is complete.
func (s *Shell) Leads() bool {
	select {
	case <-s.leads:
		return true
	default:
		return false
	}
}

// Status is every node with its cards and what pods have of them.
func (s *Shell) Status(ctx context.Context) (status []placement.NodeStatus, err error) {
	err = s.do(ctx, func() { status = s.engine.Status() })
	return status, err
}

// Modes that are served.
func (s *Shell) Modes() request.Modes { return s.options.Modes }

// TuneGC has the garbage collector run less often: most of the heap is the cache, which lives long,
// and marking it is what the slowest answers wait for. GOGC overrules it,
// and GOMEMLIMIT bounds it.
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
