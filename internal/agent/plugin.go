package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/backend/whole"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/kubelet"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// Node is one node with what the agent needs to give its containers cards.
type Node struct {
	Name   string
	Source discovery.Source
	// API is asked directly: a container starts once, and not on old news.
	API client.Reader
	Log logr.Logger
}

// DevicePlugin of the node.
func (n *Node) DevicePlugin(cfg v1alpha1.DevicePlugin) (*kubelet.Plugin, error) {
	library, err := installLibrary(cfg.Library, filepath.Join(cfg.StateDir, "lib"))
	if err != nil {
		return nil, fmt.Errorf("installing the library that holds shares: %w", err)
	}
	resources, _, err := kubelet.NewResources(filepath.Join(cfg.KubeletDir, "pod-resources", "kubelet.sock"), string(egpu.ResourceClaim))
	if err != nil {
		return nil, err
	}
	driver := &backend.NodeDriver{CDIDirs: cfg.DriverDirs, Kind: "nvidia.com/gpu"}
	return &kubelet.Plugin{
		Dir: filepath.Join(cfg.KubeletDir, "device-plugins"), Resource: string(egpu.ResourceClaim), Log: n.Log,
		Slots: &slots.Slots{
			Dir: cfg.CDIDir, Log: n.Log, Holders: resources.Holders, Share: n.share, Gone: n.gone,
			Backends: []backend.Backend{
				&gpushare.Backend{Driver: driver, Dir: filepath.Join(cfg.StateDir, "gpushare"), Library: library},
				&whole.Backend{Driver: driver},
			},
		},
	}, nil
}

// share of a container, from its pod and the cards that are there now.
func (n *Node) share(ctx context.Context, h slots.Holder) (share.Share, error) {
	pod, node := &corev1.Pod{}, &corev1.Node{}
	if err := n.API.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: h.Pod}, pod); err != nil {
		return share.Share{}, err
	}
	if pod.Spec.NodeName != n.Name {
		return share.Share{}, fmt.Errorf("pod %s/%s is on node %q by now", h.Namespace, h.Pod, pod.Spec.NodeName)
	}
	if err := n.API.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		return share.Share{}, err
	}
	cards, err := n.Source.Cards(ctx, node)
	if err != nil {
		return share.Share{}, err
	}
	return (&share.Resolver{Client: n.API}).Of(ctx, pod, h.Container, cards)
}

// gone says whether a pod has ended; another of its name is another pod.
func (n *Node) gone(ctx context.Context, key types.NamespacedName, uid types.UID) (bool, error) {
	pod := &corev1.Pod{}
	err := n.API.Get(ctx, key, pod)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	return pod.UID != uid || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
}

// installLibrary copies the library to the node, where containers mount it from. Those that run keep the
// one they have. A node without it serves whole cards alone.
func installLibrary(from, dir string) (string, error) {
	to := filepath.Join(dir, filepath.Base(from))
	source, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return to, nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = source.Close() }()
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers run it, whoever they are
		return "", err
	}
	target, err := os.OpenFile(to+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // as above
	if err != nil {
		return "", err
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		return "", err
	}
	return to, os.Rename(to+".new", to)
}
