package gpu

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/claims"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// ErrNotLeading is the answer of a replica that is not the leader.
var ErrNotLeading = errors.New("this replica is not the leader")

// bindTimeout ends a bind whose API server does not answer. reserveFor outlives it and all that a
// scheduler may do between the two, such as making volumes: a reservation is released, not forgotten.
const (
	bindTimeout = 10 * time.Second
	reserveFor  = 15 * time.Minute
	// findOutPause is between two looks at whether a pod was bound after all.
	findOutPause = time.Second
)

// Bind gives the pod cards on the node and binds it there.
func (s *Shell) Bind(ctx context.Context, key client.ObjectKey, uid types.UID, node string) error {
	// Once begun it is completed, even if the request is cancelled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bindTimeout)
	defer cancel()
	pod, err := s.podToBind(ctx, key, uid)
	if err != nil {
		return err
	}
	if !s.Asks(pod) {
		return fmt.Errorf("pod %s asks for no cards, and is not for us to bind: name the managedResources of the extender in kube-scheduler's configuration", key)
	}
	r, err := s.ReservePod(ctx, pod, node)
	if err != nil {
		return err
	}
	return r.Bind(ctx)
}

// Reservation of a pod on a node, to be bound or released.
type Reservation struct {
	shell      *Shell
	want       *podRequest
	node       string
	assignment placement.Assignment
	devices    []device
	settled    bool // the loop's
}

// ReservePod reserves cards for the pod on the node.
func (s *Shell) ReservePod(ctx context.Context, pod *corev1.Pod, node string) (*Reservation, error) {
	if !s.Leads() {
		return nil, ErrNotLeading
	}
	w, err := s.readRequest(ctx, pod)
	if err != nil {
		return nil, err
	}
	for _, l := range w.unbound {
		if !claims.InTree(l.class.Provisioner) {
			return nil, claims.Select(ctx, s.options.Client, l.claim, l.class, node)
		}
	}
	r := &Reservation{shell: s, want: w, node: node}
	if r.assignment, r.devices, err = s.assign(ctx, w, node); err != nil {
		return nil, err
	}
	return r, nil
}

// Bind binds the pod in one write: either it is bound with its cards in its annotations, or nothing
// happened and the reservation is released. While neither is known, the cards stay reserved.
func (r *Reservation) Bind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bindTimeout)
	defer cancel()
	err := r.write(ctx)
	if err == nil {
		return r.enter()
	}
	bound, known := r.outcome(err)
	switch {
	case !known:
		go r.findOut(err)
		return fmt.Errorf("whether the pod was bound is not known yet: %w", err)
	case bound:
		return r.enter() // the answer was lost, not the write
	}
	return errors.Join(err, r.settle(false))
}

// Release the reservation, unless the pod was bound.
func (r *Reservation) Release() error { return r.settle(false) }

// podToBind is the pod from the cache, or from the API server where the cache is behind.
func (s *Shell) podToBind(ctx context.Context, key client.ObjectKey, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	for _, reader := range []client.Reader{s.options.Client, s.options.Direct} {
		err := reader.Get(ctx, key, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && pod.UID == uid {
			return pod, nil
		}
	}
	return nil, fmt.Errorf("pod %s is gone", key)
}

// device is one that is made for a claim with this bind.
type device struct {
	unboundClaim
	key        string
	assignment placement.Assignment
}

// assign reserves cards for the pod and for the claims that have no device yet: all or nothing.
func (s *Shell) assign(ctx context.Context, w *podRequest, node string) (assignment placement.Assignment, devices []device, err error) {
	until := s.options.Now().Add(reserveFor)
	ask := s.chosen(ctx, w, node)
	var refused error
	err = s.doFor(ctx, w.pod, func() {
		if b := s.binding[ask.Key]; b != nil && b.uid == w.pod.UID {
			refused = &Refused{Reason: "it is being bound, and how that ends is not known yet"}
			return
		}
		for _, l := range w.unbound {
			d := device{unboundClaim: l, key: deviceKey(claims.DeviceName(l.claim))}
			if s.devices[d.key] != "" {
				refused = &Refused{Reason: fmt.Sprintf("claim %s: its ElasticGPU was made a moment ago", l.claim.Name)}
				break
			}
			if d.assignment, refused = s.assignDevice(w, &l, node, until); refused != nil {
				break
			}
			devices = append(devices, d)
		}
		if refused == nil {
			assignment, refused = s.engine.Assign(&ask, node, until)
		}
		if refused != nil {
			s.release(devices)
			return
		}
		s.binding[ask.Key] = &binding{uid: w.pod.UID}
	})
	return assignment, devices, errors.Join(err, refused)
}

// assignDevice assigns the cards of a claim: on the pod's node, or as near to it as they are free.
func (s *Shell) assignDevice(w *podRequest, l *unboundClaim, node string, until time.Time) (placement.Assignment, error) {
	if l.levels != nil {
		p := w.remoteCards(l)
		return s.engine.AssignNear(&p, node, l.levels, until)
	}
	p := devicePod(deviceKey(claims.DeviceName(l.claim)), l.cards, claims.Policy(l.class))
	p.Tolerations = []placement.Toleration{{Operator: "Exists"}} // the node is chosen
	return s.engine.Assign(&p, node, until)
}

func (s *Shell) release(devices []device) {
	for _, d := range devices {
		s.engine.Release(d.key)
	}
}

// withoutClaims is the pod beside its claims' devices.
func (w *podRequest) withoutClaims() placement.Pod {
	p := w.ask
	p.Containers = nil
	for _, c := range w.ask.Containers {
		if !strings.HasPrefix(c.Name, egpu.ClaimPrefix) {
			p.Containers = append(p.Containers, c)
		}
	}
	return p
}

// write makes the claims' devices and binds the pod.
func (r *Reservation) write(ctx context.Context) error {
	w, cluster := r.want, r.shell.options.Client
	cards := map[string][]string{}
	for _, g := range r.assignment.Grants {
		cards[g.Container] = append(cards[g.Container], request.FormatCards(g.Cards))
	}
	for _, h := range w.bound {
		if h.device.Spec.RemoteGPU != nil {
			continue // indexes are of cards of the pod's own node
		}
		cards[h.container] = append(cards[h.container], h.device.Annotations[egpu.CardsAnnotation])
	}
	for _, d := range r.devices {
		made, err := claims.Provision(ctx, cluster, d.claim, d.class, d.assignment, r.shell)
		if err != nil {
			return fmt.Errorf("claim %s: %w", d.claim.Name, err)
		}
		if d.levels == nil {
			cards[d.container] = append(cards[d.container], made.Annotations[egpu.CardsAnnotation])
		}
	}
	b := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.pod.UID, ResourceVersion: w.pod.ResourceVersion,
			Annotations: map[string]string{egpu.Assumed: "true"},
			Labels:      map[string]string{egpu.Assumed: "true"},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: r.node},
	}
	for container, lists := range cards {
		b.Annotations[egpu.ContainerPrefix+container] = strings.Join(lists, ",")
	}
	err := cluster.SubResource("binding").Create(ctx, w.pod, b)
	if !apierrors.IsConflict(err) {
		return err
	}
	// It may have changed since it was read, as by a status of kube-scheduler's: once more, for its newest version.
	now := &corev1.Pod{}
	if again := r.shell.options.Direct.Get(ctx, client.ObjectKeyFromObject(w.pod), now); again != nil || now.UID != w.pod.UID || now.Spec.NodeName != "" {
		return err
	}
	b.ResourceVersion = now.ResourceVersion
	return cluster.SubResource("binding").Create(ctx, w.pod, b)
}

// outcome of a bind that ended with an error. A refusal is final. After any other error the Binding may
// still be on its way, so the pod gets a new version: a Binding names the version that it was made for,
// and after this it is refused.
func (r *Reservation) outcome(err error) (bound, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), bindTimeout) // the deadline may be what failed the write
	defer cancel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.want.pod.Namespace, Name: r.want.pod.Name}}
	if isRefusal(err) {
		err = r.shell.options.Direct.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	} else {
		err = r.shell.options.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, newVersion(r.want.pod.UID)))
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, and maybe another one has its name
		return false, true
	case err != nil:
		return false, false
	}
	return pod.UID == r.want.pod.UID && pod.Spec.NodeName == r.node, true
}

// isRefusal: the API server has answered, and will not do it later.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}

// newVersion of a pod: its retry label changes, so that kube-scheduler tries it again as well.
func newVersion(uid types.UID) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": map[string]string{RetryLabel: strings.ToLower(rand.Text())}}})
	if err != nil {
		panic(err) // strings in maps
	}
	return patch
}

// findOut whether the pod was bound, however long that takes.
func (r *Reservation) findOut(err error) {
	for {
		select {
		case <-r.shell.ended:
			return
		case <-time.After(findOutPause):
		}
		switch bound, known := r.outcome(err); {
		case !known:
			continue
		case bound:
			_ = r.enter() // its error is that the program ends
		default:
			_ = r.settle(false)
		}
		return
	}
}

// enter what was bound. Where the cache does not have the pod yet, it is looked after: deleted before the watch
// delivers it, no event would say so, and its cards would be its for ever.
func (r *Reservation) enter() error {
	err := r.settle(true)
	if err == nil && !r.isIn(context.Background(), r.shell.options.Client) {
		go r.awaitSeen()
	}
	return err
}

// isIn says whether a reader has the pod, or may have it.
func (r *Reservation) isIn(ctx context.Context, reader client.Reader) bool {
	pod := &corev1.Pod{}
	err := reader.Get(ctx, client.ObjectKeyFromObject(r.want.pod), pod)
	return client.IgnoreNotFound(err) != nil || err == nil && pod.UID == r.want.pod.UID
}

// awaitSeen waits until the cache has the pod, or the pod is gone.
func (r *Reservation) awaitSeen() {
	s := r.shell
	for {
		select {
		case <-s.ended:
			return
		case <-time.After(findOutPause):
		}
		ctx, cancel := context.WithTimeout(context.Background(), bindTimeout)
		seen, exists := r.isIn(ctx, s.options.Client), r.isIn(ctx, s.options.Direct)
		cancel()
		switch {
		case seen:
			return
		case !exists:
			_ = s.doFor(context.Background(), r.want.pod, func() { s.sawPod(r.want.pod, true) }) // its error is that the program ends
			return
		}
	}
}

// settle enters what was bound, or releases the reservation.
func (r *Reservation) settle(bound bool) error {
	s := r.shell
	return s.doFor(context.Background(), r.want.pod, func() {
		if r.settled {
			return
		}
		r.settled = true
		p := r.want.withoutClaims()
		b := s.binding[p.Key]
		delete(s.binding, p.Key)
		if !bound || b == nil || b.gone {
			s.engine.Release(p.Key)
			s.release(r.devices) // those that were made are in the engine by their own objects
			s.requeue(false)
			if b != nil && !b.gone {
				s.attempts[p.Key] = attempt{r.want.pod.UID, r.node, r.assignment.Grants}
				if b.seen != nil {
					s.sawPod(b.seen, false) // the API server bound it all the same
				}
			}
			return
		}
		p.Selector, p.Affinity, p.Tolerations = nil, nil, nil
		s.bound(p, tracked{uid: r.want.pod.UID, node: r.node, granted: r.assignment.Grants}, r.assignment.Grants)
		for _, d := range r.devices {
			s.holdDevice(d.key, d.assignment.Node, d.cards, d.assignment.Grants)
		}
	})
}
