package dra

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// Plugin is the driver on a node.
type Plugin struct {
	Node string
	// KubeletDir is where the kubelet has its sockets.
	KubeletDir string
	Kube       kubernetes.Interface
	// API is asked for the pods of a claim, directly.
	API   client.Reader
	Slots *slots.Slots
	// Partitions of cards; nil where none can be divided.
	Partitions func(uuid string) ([]mig.Partition, bool)
	Log        logr.Logger

	mu      sync.Mutex
	helper  *kubeletplugin.Helper
	catalog *catalog
	offered time.Time // when it was last looked at
}

var _ kubeletplugin.DRAPlugin = &Plugin{}

// Start serves until ctx ends. The kubelet finds the driver by its socket, also after either was restarted.
func (p *Plugin) Start(ctx context.Context) error {
	data := filepath.Join(p.KubeletDir, "plugins", Driver)
	registry := filepath.Join(p.KubeletDir, "plugins_registry")
	for _, dir := range []string{data, registry} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(klog.NewContext(ctx, p.Log), p,
		kubeletplugin.DriverName(Driver), kubeletplugin.NodeName(p.Node), kubeletplugin.KubeClient(p.Kube),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry))
	if err != nil {
		return fmt.Errorf("serving ResourceClaims: %w", err)
	}
	p.mu.Lock()
	p.helper = helper
	err = p.publish(ctx)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	helper.Stop()
	return nil
}

// Offer these cards to ResourceClaims, and no others.
func (p *Plugin) Offer(ctx context.Context, cards []Card) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catalog, p.offered = newCatalog(cards, p.Partitions), time.Now()
	return p.publish(ctx)
}

// publish once both the driver is started and the cards are known.
func (p *Plugin) publish(ctx context.Context) error {
	if p.helper == nil || p.catalog == nil {
		return nil
	}
	return p.helper.PublishResources(ctx, p.catalog.resources(p.Node))
}

// PrepareResourceClaims makes what claims were allocated real.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answers := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var devices []kubeletplugin.Device
		err := panics.Contain(p.Log, "claim", klog.KObj(claim).String(), func() (err error) {
			devices, err = p.prepare(ctx, claim)
			return err
		})
		if err != nil {
			p.Log.Error(err, "a claim is not prepared", "claim", klog.KObj(claim))
		}
		answers[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return answers, nil
}

func (p *Plugin) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	p.mu.Lock()
	catalog := p.catalog
	p.mu.Unlock()
	if catalog == nil {
		return nil, fmt.Errorf("the cards of this node are not known yet")
	}
	var pods []corev1.Pod
	for _, user := range claim.Status.ReservedFor {
		pod := corev1.Pod{}
		if err := p.API.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: user.Name}, &pod); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if pod.UID == user.UID {
			pods = append(pods, pod)
		}
	}
	list, err := catalog.shares(claim, p.Node, pods)
	if err != nil {
		return nil, err
	}
	var devices []kubeletplugin.Device
	for _, one := range list {
		name, err := p.Slots.Prepare(ctx, one.share)
		if err != nil {
			return nil, err
		}
		for i, result := range one.results {
			device := kubeletplugin.Device{Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID}
			if i == 0 {
				device.CDIDeviceIDs = []string{name} // all of the request's cards are in it
			}
			devices = append(devices, device)
		}
	}
	return devices, nil
}

// UnprepareResourceClaims takes away what claims had. That there is nothing is no error.
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	answers := map[types.UID]error{}
	for _, claim := range claims {
		answers[claim.UID] = p.Slots.Unprepare(ctx, claim.UID)
	}
	return answers, nil
}

// HandleError of the background: the library tries again, and what it cannot mend is for people to read.
func (p *Plugin) HandleError(_ context.Context, err error, msg string) { p.Log.Error(err, msg) }

// healthEvery is how often the kubelet gets a report; after thirty seconds without one it knows nothing.
const healthEvery = 10 * time.Second

// WatchHealthStatus reports to the kubelet which devices are unhealthy, for the status of the pods that have them.
func (p *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case reports <- p.health():
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *Plugin) health() kubeletplugin.DeviceHealthReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := kubeletplugin.DeviceHealthReport{}
	if p.catalog == nil {
		return report
	}
	for name, t := range p.catalog.targets {
		device := kubeletplugin.DeviceHealth{PoolName: p.Node, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: p.offered}
		if t.card.Problem != "" {
			device.Health, device.Message = kubeletplugin.HealthStatusUnhealthy, t.card.Problem
		}
		report.Devices = append(report.Devices, device)
	}
	return report
}
