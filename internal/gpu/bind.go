package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// bindTimeout ends a bind whose API server does not answer; bindHold outlives it.
const (
	bindTimeout = 10 * time.Second
	bindHold    = 3 * bindTimeout
)

// Bind gives the pod cards on the node and binds it there, in one write: either it is bound with its
// cards in its annotations, or nothing happened and the room is free again.
func (s *Shell) Bind(ctx context.Context, key client.ObjectKey, uid types.UID, node string) error {
	if !s.Leads() {
		return ErrNotLeading
	}
	// Once begun it is seen through, even if whoever asked has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bindTimeout)
	defer cancel()
	pod, err := s.podToBind(ctx, key, uid)
	if err != nil {
		return err
	}
	w, err := s.wantOf(ctx, pod)
	if err != nil {
		return err
	}
	for _, l := range w.lacks {
		if !claims.InTree(l.class.Provisioner) {
			return claims.Select(ctx, s.options.Client, l.claim, l.class, node)
		}
	}
	assignment, devices, err := s.assign(ctx, w, node)
	if err != nil {
		return err
	}
	err = s.write(ctx, w, node, assignment, devices)
	if err != nil && s.isBound(ctx, key, uid, node) {
		err = nil // the answer was lost, not the write
	}
	return errors.Join(err, s.settle(w, node, assignment, devices, err == nil))
}

// podToBind is the pod from the cache, or from the API server where the cache is behind.
func (s *Shell) podToBind(ctx context.Context, key client.ObjectKey, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	for _, reader := range []client.Reader{s.options.Client, s.options.Direct} {
		err := reader.Get(ctx, key, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && (uid == "" || pod.UID == uid) {
			return pod, nil
		}
	}
	return nil, fmt.Errorf("pod %s is gone", key)
}

// device is one that is made for a claim with this bind.
type device struct {
	lacking
	key        string
	assignment placement.Assignment
}

// assign holds cards for the pod and for the claims that have no device yet: all or nothing.
func (s *Shell) assign(ctx context.Context, w *want, node string) (assignment placement.Assignment, devices []device, err error) {
	until := s.options.Now().Add(bindHold)
	ask := w.withoutClaims()
	var refused error
	err = s.do(ctx, func() {
		for _, l := range w.lacks {
			d := device{lacking: l, key: deviceKey(claims.DeviceName(l.claim))}
			if s.devices[d.key] != "" {
				refused = &Refused{Reason: fmt.Sprintf("claim %s: its ElasticGPU was made a moment ago", l.claim.Name)}
				break
			}
			p := devicePod(d.key, l.cards, claims.Policy(l.class))
			p.Tolerations = []placement.Toleration{{Operator: "Exists"}} // the node is chosen
			if d.assignment, refused = s.engine.Assign(&p, node, until); refused != nil {
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

func (s *Shell) release(devices []device) {
	for _, d := range devices {
		s.engine.Release(d.key)
	}
}

// withoutClaims is the pod beside its claims' devices.
func (w *want) withoutClaims() placement.Pod {
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
func (s *Shell) write(ctx context.Context, w *want, node string, assignment placement.Assignment, devices []device) error {
	cards := map[string][]string{}
	for _, g := range assignment.Grants {
		cards[g.Container] = append(cards[g.Container], request.FormatCards(g.Cards))
	}
	for _, h := range w.has {
		cards[h.container] = append(cards[h.container], h.device.Annotations[egpu.CardsAnnotation])
	}
	for _, d := range devices {
		made, err := claims.Provision(ctx, s.options.Client, d.claim, d.class, d.assignment, s.GPUName)
		if err != nil {
			return fmt.Errorf("claim %s: %w", d.claim.Name, err)
		}
		cards[d.container] = append(cards[d.container], made.Annotations[egpu.CardsAnnotation])
	}
	b := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.pod.UID,
			Annotations: map[string]string{egpu.Assumed: "true"},
			Labels:      map[string]string{egpu.Assumed: "true"},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}
	for container, lists := range cards {
		b.Annotations[egpu.ContainerPrefix+container] = strings.Join(lists, ",")
	}
	return s.options.Client.SubResource("binding").Create(ctx, w.pod, b)
}

// isBound asks the API server itself whether the pod is on the node after all.
func (s *Shell) isBound(ctx context.Context, key client.ObjectKey, uid types.UID, node string) bool {
	pod := &corev1.Pod{}
	// The deadline may be what failed the write.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bindTimeout)
	defer cancel()
	err := s.options.Direct.Get(ctx, key, pod)
	return err == nil && (uid == "" || pod.UID == uid) && pod.Spec.NodeName == node
}

// settle enters what was bound, or gives the room back.
func (s *Shell) settle(w *want, node string, assignment placement.Assignment, devices []device, ok bool) error {
	return s.do(context.Background(), func() {
		p := w.withoutClaims()
		b := s.binding[p.Key]
		delete(s.binding, p.Key)
		if !ok || b == nil || b.gone {
			s.engine.Release(p.Key)
			s.release(devices) // those that were made are on the books by their own objects
			s.nudge(false)
			return
		}
		p.Selector, p.Affinity, p.Tolerations = nil, nil, nil
		s.bound(p, w.pod.UID, node, assignment.Grants)
		for _, d := range devices {
			s.holdDevice(d.key, node, d.cards, d.assignment.Grants)
		}
	})
}
