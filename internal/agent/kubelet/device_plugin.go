package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// Count of slots: more than a node has containers.
const Count = 1024

// Plugin serves slots to the kubelet, and registers again whenever it is restarted.
type Plugin struct {
	deviceplugin.UnimplementedDevicePluginServer

	// Dir is the kubelet's folder for device plugins.
	Dir      string
	Resource string
	Slots    *slots.Slots
	Log      logr.Logger

	stopping <-chan struct{}
}

const (
	socketName  = "elastic-gpu.sock"
	kubeletName = "kubelet.sock"
	// cleanEvery is how often slots of containers that have gone are emptied; a new container empties
	// its own at once.
	cleanEvery = 10 * time.Second
	// retry is short: pods that the kubelet looks at before we are back are turned away.
	retry = 100 * time.Millisecond
)

// Start serves until ctx ends. A kubelet that is not there is waited for.
func (p *Plugin) Start(ctx context.Context) error {
	p.stopping = ctx.Done()
	if err := os.MkdirAll(p.Dir, 0o750); err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(p.Dir); err != nil {
		return fmt.Errorf("watching the kubelet's folder: %w", err)
	}
	for ctx.Err() == nil {
		if err := p.serve(ctx, watcher.Events); err != nil && ctx.Err() == nil {
			p.Log.Info("the kubelet does not take us, trying again", "error", err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(retry):
			}
		}
	}
	return nil
}

// serve until the kubelet restarts, which it shows by making its socket anew and removing ours.
func (p *Plugin) serve(ctx context.Context, events <-chan fsnotify.Event) error {
	socket := filepath.Join(p.Dir, socketName)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	// The next agent may have its socket there by the time this one ends.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer server.Stop()
	if err := p.register(ctx); err != nil {
		return err
	}
	p.Log.Info("registered with the kubelet", "resource", p.Resource)
	clean := time.NewTicker(cleanEvery)
	defer clean.Stop()
	p.clean(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case event := <-events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletName {
				p.Log.Info("the kubelet was restarted")
				return nil
			}
		case <-clean.C:
			p.clean(ctx)
		}
	}
}

func (p *Plugin) clean(ctx context.Context) {
	if err := p.Slots.Clean(ctx); err != nil && ctx.Err() == nil {
		p.Log.Error(err, "emptying slots failed")
	}
}

func (p *Plugin) register(ctx context.Context) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(p.Dir, kubeletName), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = deviceplugin.NewRegistrationClient(connection).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: socketName, ResourceName: p.Resource,
		Options: &deviceplugin.DevicePluginOptions{PreStartRequired: true},
	}, grpc.WaitForReady(true))
	return err
}

// GetDevicePluginOptions has the kubelet call PreStartContainer.
func (*Plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch lists the slots. They are all healthy: the health of cards is for the scheduler.
func (p *Plugin) ListAndWatch(_ *deviceplugin.Empty, stream deviceplugin.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(List()); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.stopping:
	}
	return nil
}

// List of all slots, for the kubelet.
func List() *deviceplugin.ListAndWatchResponse {
	list := &deviceplugin.ListAndWatchResponse{Devices: make([]*deviceplugin.Device, Count)}
	for i := range list.Devices {
		list.Devices[i] = &deviceplugin.Device{ID: strconv.Itoa(i), Health: deviceplugin.Healthy}
	}
	return list
}

// Allocate names the slots to the container runtime. Which container has them is not known yet.
func (p *Plugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	response := &deviceplugin.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		ids := container.GetDevicesIds()
		if len(ids) != 1 {
			return nil, fmt.Errorf("a container has %d of %s: write 1, or leave it to the webhook", len(ids), p.Resource)
		}
		if err := slots.CheckID(ids[0]); err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			CdiDevices: []*deviceplugin.CDIDevice{{Name: slots.Device(ids[0])}},
		})
	}
	return response, nil
}

// PreStartContainer fills the slot, before the runtime reads it.
func (p *Plugin) PreStartContainer(ctx context.Context, request *deviceplugin.PreStartContainerRequest) (*deviceplugin.PreStartContainerResponse, error) {
	for _, id := range request.GetDevicesIds() {
		if err := p.Slots.Fill(ctx, id); err != nil {
			p.Log.Error(err, "a container cannot start", "slot", id)
			return nil, err
		}
	}
	return &deviceplugin.PreStartContainerResponse{}, nil
}
