package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
)

// Card of this machine, as its driver says.
type Card struct {
	Index  int
	Model  string
	Memory int64 // MiB
}

// FindCards of this machine, through the agent: it has the driver's library.
func FindCards(ctx context.Context) ([]Card, error) {
	agent, err := sibling("elastic-gpu-agent")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, agent, "inspect", "-o", "json").Output()
	if err != nil {
		if said := (*exec.ExitError)(nil); errors.As(err, &said) && len(said.Stderr) > 0 {
			err = errors.New(strings.TrimSpace(string(said.Stderr)))
		}
		return nil, fmt.Errorf("no NVIDIA cards were found on this machine: %w", err)
	}
	list := &egpu.GPUList{}
	if err := json.Unmarshal(out, list); err != nil {
		return nil, fmt.Errorf("elastic-gpu-agent inspect: %w", err)
	}
	var cards []Card
	for i := range list.Items {
		spec := &list.Items[i].Spec
		cards = append(cards, Card{Index: spec.Index, Model: spec.Model, Memory: spec.Memory})
	}
	if len(cards) == 0 {
		return nil, errors.New("the driver of this machine has no cards")
	}
	return cards, nil
}

// useCards finds this machine's cards, for which there is a node of their own.
func (o *UpOptions) useCards(ctx context.Context) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("--cards takes Linux and root: containers, mounts and cgroups are made on this machine")
	}
	found, err := FindCards(ctx)
	if err != nil {
		return err
	}
	for _, c := range found {
		fmt.Fprintf(o.Out, "Card %d: %s, %d MiB\n", c.Index, c.Model, c.Memory)
	}
	o.RealNode, o.Sample = true, false
	return nil
}

// releaseCards takes away what the node's agent has made of this machine's cards: MIG instances outlive it. No
// container may run any more.
func (c *Cluster) releaseCards() error {
	state := stateDir(c.NodeDir())
	if _, err := os.Stat(state); err != nil {
		return nil //nolint:nilerr // there is no agent that made any
	}
	agent, err := sibling("elastic-gpu-agent")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := FindCards(ctx); err != nil {
		return nil //nolint:nilerr // a node without cards
	}
	out, err := exec.CommandContext(ctx, agent, "release", "--state-dir", state, "--cdi-dir", filepath.Join(c.NodeDir(), "cdi"),
		"--library", filepath.Join(filepath.Dir(agent), "libelasticgpu.so")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("giving the cards back: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// countCards has whole cards and shares of them come from one quota, in percent.
func countCards(cfg *v1alpha1.QueueConfiguration) {
	replace := kueueconfig.Replace
	cfg.Resources.Transformations = append(cfg.Resources.Transformations, kueueconfig.ResourceTransformation{
		Input: egpu.ResourceWhole, Strategy: &replace,
		Outputs: corev1.ResourceList{egpu.ResourceCore: resource.MustParse("100")},
	})
}

// Workstation is the queue of a machine's cards, and its flavor; LocalQueues that lead to it are called main.
// Urgent is the priority of jobs that others make way for.
const (
	Workstation = "workstation"
	Urgent      = "urgent"
)

// offerCards makes a queue of all that the node has, once its cards are offered.
func offerCards(ctx context.Context, c client.Client, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	node := &corev1.Node{}
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKey{Name: NodeName}, node); err != nil {
			return false, err
		}
		return !node.Status.Allocatable.Name(egpu.ResourceCore, resource.DecimalSI).IsZero(), nil
	})
	if err != nil {
		return fmt.Errorf("the agent offers no cards: %w", err)
	}
	objects, err := plain(queueOf(node))
	if err != nil {
		return err
	}
	policies, err := deploy.Program("workstation")
	if err != nil {
		return err
	}
	objects = append(objects, policies...)
	if err := apply(ctx, c, objects); err != nil {
		return err
	}
	say("The queue main has this machine: %s cpus, %s of memory, %s percent of cards",
		node.Status.Allocatable.Cpu(), node.Status.Allocatable.Memory(), node.Status.Allocatable.Name(egpu.ResourceCore, resource.DecimalSI))
	return nil
}

// queueOf a node: a ClusterQueue in which the more important goes first, a LocalQueue, and a class for the urgent.
func queueOf(node *corev1.Node) []client.Object {
	version := kueue.SchemeGroupVersion.String()
	flavor := &kueue.ResourceFlavor{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ResourceFlavor"}}
	flavor.Name = Workstation
	flavor.Spec.NodeLabels = map[string]string{corev1.LabelHostname: node.Name}
	quotas := kueue.FlavorQuotas{Name: Workstation}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, egpu.ResourceCore, egpu.ResourceMemory}
	for _, name := range names {
		quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: name, NominalQuota: node.Status.Allocatable[name]})
	}
	queue := &kueue.ClusterQueue{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ClusterQueue"}}
	queue.Name = Workstation
	queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
	queue.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: names, Flavors: []kueue.FlavorQuotas{quotas}}}
	urgent := &kueue.WorkloadPriorityClass{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "WorkloadPriorityClass"}, Value: 1000}
	urgent.Name = Urgent
	return []client.Object{flavor, queue, localQueue(metav1.NamespaceDefault), urgent}
}

// localQueue of a namespace that leads to the workstation's queue.
func localQueue(namespace string) *kueue.LocalQueue {
	queue := &kueue.LocalQueue{TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "LocalQueue"}}
	queue.Namespace, queue.Name, queue.Spec.ClusterQueue = namespace, "main", Workstation
	return queue
}
