package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	wire "github.com/elastic-ai/elastic/api/backend/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend asks the one behind a socket.
type Backend struct {
	name   string
	client wire.BackendClient
	// Timeout of an answer. One that does not come stops the containers that need it, and no others.
	Timeout time.Duration
}

// timeout is long: a backend may have to make a device.
const timeout = 30 * time.Second

// New is the backend behind a socket, under the name that classes choose it by. It need not be there yet.
func New(name, socket string) (*Backend, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("backend %s at %s: %w", name, socket, err)
	}
	return &Backend{name, wire.NewBackendClient(connection), timeout}, nil
}

// Name by which classes choose it.
func (b *Backend) Name() string { return b.name }

// Prepare asks it to make the share real.
func (b *Backend) Prepare(ctx context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	out := &wire.Share{
		Id: s.ID, Namespace: s.Pod.Namespace, Pod: s.Pod.Name, Uid: string(s.UID), Container: s.Container, Parameters: s.Parameters,
	}
	for _, c := range s.Cards {
		out.Cards = append(out.Cards, &wire.Card{
			Index: int32(c.Index), Uuid: c.UUID, Model: c.Model, Path: c.Path, TotalMemoryMb: c.Card.MemoryMB, Percent: c.Percent, MemoryMb: c.MemoryMB,
		})
	}
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	answer, err := b.client.Prepare(ctx, &wire.PrepareRequest{Share: out})
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", b.name, err)
	}
	edits := &specs.ContainerEdits{}
	if err := json.Unmarshal([]byte(answer.GetContainerEdits()), edits); err != nil {
		return nil, fmt.Errorf("backend %s: its container edits: %w", b.name, err)
	}
	return edits, nil
}

// Release asks it to take the share away.
func (b *Backend) Release(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	_, err := b.client.Release(ctx, &wire.ReleaseRequest{Id: id})
	return err
}

// Held asks it what is there.
func (b *Backend) Held(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	answer, err := b.client.Held(ctx, &wire.HeldRequest{})
	return answer.GetIds(), err
}

// Server is the other side: it offers a backend that is written in Go.
type Server struct {
	wire.UnimplementedBackendServer
	Backend backend.Backend
}

// Prepare a share.
func (s *Server) Prepare(ctx context.Context, r *wire.PrepareRequest) (*wire.PrepareResponse, error) {
	in := r.GetShare()
	out := &share.Share{
		ID: in.GetId(), Pod: types.NamespacedName{Namespace: in.GetNamespace(), Name: in.GetPod()}, UID: types.UID(in.GetUid()),
		Container: in.GetContainer(), Parameters: in.GetParameters(),
	}
	for _, c := range in.GetCards() {
		out.Cards = append(out.Cards, share.Card{
			Card:    discovery.Card{Index: int(c.GetIndex()), UUID: c.GetUuid(), Model: c.GetModel(), Path: c.GetPath(), MemoryMB: c.GetTotalMemoryMb()},
			Percent: c.GetPercent(), MemoryMB: c.GetMemoryMb(),
		})
	}
	edits, err := s.Backend.Prepare(ctx, out)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(edits)
	if err != nil {
		return nil, err
	}
	return &wire.PrepareResponse{ContainerEdits: string(text)}, nil
}

// Release a share.
func (s *Server) Release(ctx context.Context, r *wire.ReleaseRequest) (*wire.ReleaseResponse, error) {
	return &wire.ReleaseResponse{}, s.Backend.Release(ctx, r.GetId())
}

// Held lists shares.
func (s *Server) Held(ctx context.Context, _ *wire.HeldRequest) (*wire.HeldResponse, error) {
	ids, err := s.Backend.Held(ctx)
	return &wire.HeldResponse{Ids: ids}, err
}
