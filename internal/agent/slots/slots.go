package slots

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/panics"
)

// Kind of our CDI devices.
const Kind = "elasticgpu.io/share"

// ContainerRef is the container that has a slot, as the kubelet says.
type ContainerRef struct{ Namespace, Pod, Container string }

func (c ContainerRef) pod() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Pod}
}

// Slots of a node.
type Slots struct {
	// Dir is where the container runtime reads CDI specifications.
	Dir string
	// Backends of this node. The first is for shares of cards, "whole" for whole ones.
	Backends []backend.Backend
	// Containers says which container has which slot now.
	Containers func(ctx context.Context) (map[string]ContainerRef, error)
	// Share says what a container has.
	Share func(ctx context.Context, c ContainerRef) (share.Share, error)
	// Gone says whether the pod or the ResourceClaim that a share is for is no longer there.
	Gone func(ctx context.Context, s *share.Share) (bool, error)
	// Changed is called when a slot was filled or emptied; may be nil.
	Changed func()
	// Defective is called when a defect concerned a container's slot, which was set aside; may be nil.
	Defective func(ctx context.Context, pod types.NamespacedName, err error)
	Log       logr.Logger

	mu    sync.Mutex      // one slot is made or unmade at a time
	aside map[string]bool // slots that are not emptied, as a defect prevents it, until they are filled again
}

// slotID is what a slot can be called: it becomes part of paths and of a device's name.
var slotID = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// CheckID says why a slot cannot be called so.
func CheckID(id string) error {
	if !slotID.MatchString(id) {
		return fmt.Errorf("%q is the name of no slot", id[:min(len(id), 64)])
	}
	return nil
}

// Device is a slot's name to the container runtime.
func Device(id string) string { return Kind + "=" + id }

// ErrNoContainer has the slot.
var ErrNoContainer = errors.New("the kubelet says that no container has it")

// Fill makes the share of the slot's container real and writes it down for the container runtime.
func (s *Slots) Fill(ctx context.Context, id string) error {
	container, err := s.containerOf(ctx, id)
	if err != nil {
		return err
	}
	// This may wait for the scheduler. Other containers do not wait with it.
	what, err := s.resolve(ctx, container)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.containerOf(ctx, id)
	if err != nil {
		return err
	}
	if now != container {
		return fmt.Errorf("slot %s: container %s of pod %s/%s has it by now", id, now.Container, now.Namespace, now.Pod)
	}
	what.ID = id
	return s.contain(ctx, "fill", id, container.pod(), func() error { return s.make(ctx, what) })
}

// resolve finds out what a container has.
func (s *Slots) resolve(ctx context.Context, container ContainerRef) (what share.Share, err error) {
	err = panics.Contain(s.Log, "resolve", "container "+container.Container+" of pod "+container.pod().String(), func() (err error) {
		what, err = s.Share(ctx, container)
		return err
	})
	if panics.Is(err) && s.Defective != nil {
		s.Defective(ctx, container.pod(), err)
	}
	return what, err
}

// contain what concerns one slot: a defect is one container's.
func (s *Slots) contain(ctx context.Context, stage, id string, pod types.NamespacedName, work func() error) error {
	delete(s.aside, id)
	err := panics.Contain(s.Log, stage, "slot "+id+" of pod "+pod.String(), work)
	if panics.Is(err) {
		if s.aside == nil {
			s.aside = map[string]bool{}
		}
		s.aside[id] = true
		if s.Defective != nil {
			s.Defective(ctx, pod, err)
		}
	}
	return err
}

func (s *Slots) containerOf(ctx context.Context, id string) (ContainerRef, error) {
	containers, err := s.Containers(ctx)
	if err != nil {
		return ContainerRef{}, err
	}
	container, found := containers[id]
	if !found {
		return ContainerRef{}, fmt.Errorf("slot %s: %w", id, ErrNoContainer)
	}
	return container, nil
}

// Prepare makes a share real before it is known which container uses it, and says what it is called to the
// container runtime.
func (s *Slots) Prepare(ctx context.Context, what share.Share) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Device(what.ID), s.contain(ctx, "prepare", what.ID, what.Pod, func() error { return s.make(ctx, what) })
}

// Unprepare takes away what was prepared for a ResourceClaim.
func (s *Slots) Unprepare(ctx context.Context, claim types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	grants, err := s.Grants()
	if err != nil {
		return err
	}
	var failed error
	for i := range grants {
		if grants[i].Claim != nil && grants[i].Claim.UID == claim {
			failed = errors.Join(failed, s.contain(ctx, "unprepare", grants[i].ID, grants[i].Pod, func() error { return s.empty(ctx, grants[i].ID) }))
		}
	}
	return failed
}

// make a share real and write it down for the container runtime.
func (s *Slots) make(ctx context.Context, what share.Share) error {
	id := what.ID
	if err := CheckID(id); err != nil {
		return err
	}
	b, err := s.backendFor(&what)
	if err != nil {
		return err
	}
	if err := s.check(&what, b.Name()); err != nil {
		return err
	}
	// What an earlier container left in any backend is gone before the next one comes. A backend that does
	// not answer is asked again when the slot is empty; it stops only the containers that need it.
	for _, other := range s.Backends {
		if other != b {
			if err := other.Release(ctx, id); err != nil {
				s.Log.Error(err, "what an earlier container had is not taken away yet", "slot", id, "backend", other.Name())
			}
		}
	}
	edits, err := b.Prepare(ctx, &what)
	if err != nil {
		return err
	}
	edits.Env = append(edits.Env, "ELASTIC_GPU_BACKEND="+b.Name())
	s.Log.Info("a container gets its cards", "slot", id, "pod", what.Pod.String(), "container", what.Container, "backend", b.Name(), "cards", len(what.Cards))
	err = s.write(Grant{Backend: b.Name(), Share: what}, edits)
	s.changed()
	return err
}

func (s *Slots) changed() {
	if s.Changed != nil {
		s.Changed()
	}
}

// backendFor a share: the one its class names, else whole cards have one of their own, and shares the first, as do
// whole cards that are to be swapped. Cards of other nodes have one, too; their servers are under the library.
func (s *Slots) backendFor(what *share.Share) (backend.Backend, error) {
	name := what.Parameters["backend"]
	if what.Serves != "" {
		return s.Backends[0], nil
	}
	if what.Remote != nil {
		name = "remote"
	}
	if name == "" && (!what.Whole() || what.Parameters["swap"] == "on") {
		return s.Backends[0], nil
	}
	name = cmp.Or(name, "whole")
	names := make([]string, len(s.Backends))
	for i, b := range s.Backends {
		if names[i] = b.Name(); names[i] == name {
			return b, nil
		}
	}
	return nil, fmt.Errorf("pod %s wants the backend %q: this node has %s", what.Pod, name, strings.Join(names, ", "))
}

// Clean empties slots that no container has.
func (s *Slots) Clean(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	containers, err := s.Containers(ctx)
	if err != nil {
		return err // without an answer from the kubelet nothing is taken away
	}
	grants, err := s.Grants()
	if err != nil {
		return err
	}
	left := map[string]*Grant{}
	for i := range grants {
		left[grants[i].ID] = &grants[i]
	}
	var failed error
	for _, b := range s.Backends {
		ids, err := b.Held(ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("backend %s: %w", b.Name(), err))
		}
		for _, id := range ids {
			if _, known := left[id]; !known {
				left[id] = nil
			}
		}
	}
	for id, grant := range left {
		if _, used := containers[id]; used || s.aside[id] {
			continue
		}
		pod := types.NamespacedName{}
		if grant != nil {
			pod = grant.Pod
		}
		known := true
		failed = errors.Join(failed, s.contain(ctx, "clean", id, pod, func() error {
			gone, err := s.gone(ctx, grant)
			if known = err == nil; !known || !gone {
				return err
			}
			return s.empty(ctx, id)
		}))
		if !known {
			return failed // without an answer from the API neither
		}
	}
	return failed
}

// gone says whether what a slot was filled for is no longer there.
func (s *Slots) gone(ctx context.Context, grant *Grant) (bool, error) {
	if grant == nil || grant.Pod.Name == "" && grant.Claim == nil {
		return true, nil
	}
	return s.Gone(ctx, &grant.Share)
}

// empty a slot: what it is made of goes before what says so.
func (s *Slots) empty(ctx context.Context, id string) error {
	var failed error
	for _, b := range s.Backends {
		if err := b.Release(ctx, id); err != nil {
			failed = errors.Join(failed, fmt.Errorf("backend %s, slot %s: %w", b.Name(), id, err))
		}
	}
	if failed != nil {
		return failed
	}
	if err := os.Remove(s.file(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.Log.Info("a slot is empty again", "slot", id)
	s.changed()
	return nil
}

// Grant is what a slot holds, as it was when its container started.
type Grant struct {
	Backend string
	share.Share
}

// grantAnnotation of a slot's specification has its grant.
const grantAnnotation = "elasticgpu.io/grant"

// Grants of all slots that are filled.
func (s *Slots) Grants() ([]Grant, error) {
	files, err := filepath.Glob(s.file("*"))
	if err != nil {
		return nil, err
	}
	grants := make([]Grant, 0, len(files))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		grant, spec := Grant{}, specs.Spec{}
		// A file that cannot be read, as one from a full disk, is a slot without a container.
		if json.Unmarshal(data, &spec) == nil {
			_ = json.Unmarshal([]byte(spec.Annotations[grantAnnotation]), &grant)
		}
		grant.ID = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), filePrefix), ".json")
		grants = append(grants, grant)
	}
	return grants, nil
}

// filePrefix of the slots' specifications.
var filePrefix = strings.ReplaceAll(Kind, "/", "-") + "-"

func (s *Slots) file(id string) string { return filepath.Join(s.Dir, filePrefix+id+".json") }

// write the slot's specification, at once: the runtime may read the folder at any time.
func (s *Slots) write(grant Grant, edits *specs.ContainerEdits) error {
	record, err := json.Marshal(grant)
	if err != nil {
		return err
	}
	spec := specs.Spec{
		Version: "0.6.0", Kind: Kind, Annotations: map[string]string{grantAnnotation: string(record)},
		Devices: []specs.Device{{Name: grant.ID, ContainerEdits: *edits}},
	}
	if len(edits.AdditionalGIDs) > 0 {
		spec.Version = "0.7.0"
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil { //nolint:gosec // the runtime's folder
		return err
	}
	temporary := filepath.Join(s.Dir, "."+grant.ID+".new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.file(grant.ID))
}
