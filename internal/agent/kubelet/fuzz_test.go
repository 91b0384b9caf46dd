package kubelet_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
	"github.com/elastic-ai/elastic/internal/agent/kubelet"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// FuzzRequests of a kubelet: whatever devices it names, what is answered names a slot, and what is written is in the
// folder of specifications.
func FuzzRequests(f *testing.F) {
	for _, ids := range []string{"", "0", "1023", "3,4", "../../etc/x", "a=b", "7\n", "c0ffee00c0ff", strings.Repeat("9", 300), "*", "\x00", "A"} {
		f.Add(ids)
	}
	dir := f.TempDir()
	name := regexp.MustCompile(`^elasticgpu.io/share=[a-z0-9]{1,32}$`)
	f.Fuzz(func(t *testing.T, text string) {
		ids := strings.Split(text, ",")
		p := &kubelet.Plugin{Resource: resource, Log: logr.Discard(), Slots: &slots.Slots{
			Dir: filepath.Join(dir, "cdi"), Log: logr.Discard(), Backends: []backend.Backend{&simulated.Backend{As: "simulated", Dir: filepath.Join(dir, "state")}},
			Containers: func(context.Context) (map[string]slots.ContainerRef, error) {
				all := map[string]slots.ContainerRef{}
				for _, id := range ids {
					all[id] = slots.ContainerRef{Namespace: "team", Pod: "p", Container: "main"}
				}
				return all, nil
			},
			Share: func(context.Context, slots.ContainerRef) (share.Share, error) {
				return *conformance.Subject{}.Share("", 0), nil
			},
			Gone: func(context.Context, *share.Share) (bool, error) { return true, nil },
		}}
		request := &deviceplugin.AllocateRequest{}
		for _, id := range ids {
			request.ContainerRequests = append(request.ContainerRequests, &deviceplugin.ContainerAllocateRequest{DevicesIds: []string{id}})
		}
		request.ContainerRequests = append(request.ContainerRequests, nil)
		if _, err := p.Allocate(t.Context(), request); err == nil {
			t.Error("a container without a device got one")
		}
		request.ContainerRequests = request.ContainerRequests[:len(ids)]
		if answer, err := p.Allocate(t.Context(), request); err == nil {
			for _, r := range answer.GetContainerResponses() {
				if !name.MatchString(r.GetCdiDevices()[0].GetName()) {
					t.Errorf("the device %q", r.GetCdiDevices()[0].GetName())
				}
			}
		}
		_, _ = p.PreStartContainer(t.Context(), &deviceplugin.PreStartContainerRequest{DevicesIds: ids})
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			if e.Name() != "cdi" && e.Name() != "state" {
				t.Errorf("%s was written", e.Name())
			}
		}
		if err := p.Slots.Clean(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
