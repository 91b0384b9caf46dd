package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/kubelet"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// slotOf is the slot that the kubelet has given a pod.
func slotOf(ctx context.Context, p *corev1.Pod) (string, error) {
	resources, done, err := kubelet.NewResources(nodeDir("kubelet", "pod-resources", "kubelet.sock"), string(egpu.ResourceClaim))
	if err != nil {
		return "", err
	}
	defer func() { _ = done() }()
	containers, err := resources.Containers(ctx)
	if err != nil {
		return "", err
	}
	for id, h := range containers {
		if h.Namespace == p.Namespace && h.Pod == p.Name {
			return id, nil
		}
	}
	return "", errors.New("it has no slot")
}

// agentPID is the process that serves the real node now.
func agentPID() (int, error) {
	c, err := local.Open("test")
	if err != nil {
		return 0, err
	}
	state, err := c.State()
	if err != nil {
		return 0, err
	}
	for _, p := range state.Programs {
		if strings.HasSuffix(p.Name, local.NodeName) {
			return p.PID, nil
		}
	}
	return 0, errors.New("no agent serves the real node")
}

func kubeletPID() (int, error) {
	text, err := os.ReadFile(nodeDir("kubelet.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// kill a process for good and wait until another is in its place.
func kill(t *testing.T, what string, pid func() (int, error)) {
	t.Helper()
	was, err := pid()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, what+" is started again", func(context.Context) error {
		is, err := pid()
		if err == nil && is == was {
			err = fmt.Errorf("it is still process %d", was)
		}
		return err
	})
	waitRegistered(t, nodeDir())
}

// waitRegistered waits until the kubelet of a node's folder knows the agent.
func waitRegistered(t *testing.T, node string) {
	t.Helper()
	sandbox.Eventually(t, "the kubelet knows the agent", func(ctx context.Context) error { return registered(ctx, node) })
}

// registered says whether the kubelet has slots to give. A pod that it gets before that it turns away.
func registered(ctx context.Context, node string) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(node, "kubelet", "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	all, err := podresources.NewPodResourcesListerClient(connection).GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return err
	}
	for _, device := range all.GetDevices() {
		if device.GetResourceName() == string(egpu.ResourceClaim) {
			return nil
		}
	}
	return errors.New("it has no slots")
}

// waiting is a pod that has its slot and not started: a volume of it is not there yet.
func waiting(t *testing.T, ns, name string, args []string) (*corev1.Pod, *corev1.ConfigMap) {
	t.Helper()
	p := pod(ns, name, args, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	p.Spec.Volumes = []corev1.Volume{{Name: "late", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
	}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "late", MountPath: "/late"}}
	cluster.Make(t, p)
	sandbox.Eventually(t, "the kubelet gives a slot to "+name, func(ctx context.Context) error {
		_, err := slotOf(ctx, p)
		return err
	})
	return p, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// The kubelet has asked which devices a container gets, and before it starts the agent is killed.
func TestAgentDiesBetweenAllocateAndStart(t *testing.T) {
	ns := cluster.Namespace(t)
	p, late := waiting(t, ns, "late", nil)
	kill(t, "the agent", agentPID)
	cluster.Make(t, late)
	probed(t, p).holds(t, 30, 1000)
}

// The kubelet is killed while a container runs: that stays with its share, and the next one gets its own.
func TestKubeletRestarts(t *testing.T) {
	ns := cluster.Namespace(t)
	runs := pod(ns, "runs", stay, egpu.ResourceCore, 20, egpu.ResourceMemory, 1200)
	cluster.Make(t, runs)
	probed(t, runs).holds(t, 20, 1200)
	slot, err := slotOf(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, "the kubelet", kubeletPID)
	next := pod(ns, "next", nil, egpu.ResourceCore, 10, egpu.ResourceMemory, 1100)
	cluster.Make(t, next)
	probed(t, next).holds(t, 10, 1100)
	// A kubelet that looks at its pods before the plugin is back ends them, whatever they have
	// (kubernetes/kubernetes#118559). One that it leaves running has what it had.
	sandbox.Eventually(t, "the container that runs still has its share", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(runs), runs); err != nil {
			return err
		}
		if runs.Status.Phase != corev1.PodRunning {
			t.Logf("the kubelet has ended the pod: %s %s", runs.Status.Phase, runs.Status.Reason)
			return nil
		}
		again, err := slotOf(ctx, runs)
		if err == nil && again != slot {
			err = fmt.Errorf("it has slot %q, and had %q", again, slot)
		}
		if err == nil {
			_, err = os.Stat(nodeDir("elastic-gpu", "gpushare", "shares", slot, "etc", "limits"))
		}
		return err
	})
}

// A pod goes while no agent runs; what it had is taken away nevertheless.
func TestPodGoesWhileTheAgentIsDown(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "gone", stay, egpu.ResourceCore, 10, egpu.ResourceMemory, 1000)
	cluster.Make(t, p)
	probed(t, p)
	slot, err := slotOf(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	deleteUnseen(t, p)
	sandbox.Eventually(t, "its share is taken away", func(context.Context) error {
		if _, err := os.Stat(nodeDir("elastic-gpu", "gpushare", "shares", slot)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// deleteUnseen deletes a pod while the agent does not see it: stopped, it sees
// nothing; killed, it is started again.
func deleteUnseen(t *testing.T, p *corev1.Pod) {
	t.Helper()
	pid, err := agentPID()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	kill(t, "the agent", agentPID)
}
