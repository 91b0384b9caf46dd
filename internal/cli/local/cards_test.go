package local

import (
	"os/user"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// The queue of a machine has all that its node has, and a whole card counts as its percents.
func TestQueueOfAMachine(t *testing.T) {
	node := &corev1.Node{}
	node.Name = NodeName
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		egpu.ResourceCore: resource.MustParse("200"), egpu.ResourceMemory: resource.MustParse("81920"), "pods": resource.MustParse("110"),
	}
	objects := queueOf(node)
	queue := objects[1].(*kueue.ClusterQueue)
	group := queue.Spec.ResourceGroups[0]
	if len(group.CoveredResources) != 4 || len(group.Flavors[0].Resources) != 4 {
		t.Fatalf("%+v", group)
	}
	for _, r := range group.Flavors[0].Resources {
		if r.NominalQuota.Cmp(node.Status.Allocatable[r.Name]) != 0 {
			t.Errorf("%s: %s", r.Name, r.NominalQuota.String())
		}
	}
	cfg := v1alpha1.NewQueueConfiguration()
	countCards(cfg)
	if out := cfg.Resources.Transformations[0].Outputs[egpu.ResourceCore]; out.Value() != 100 || *cfg.Resources.Transformations[0].Strategy != "Replace" {
		t.Errorf("%+v", cfg.Resources.Transformations)
	}
}

// What a policy goes by is written on the person's namespace; the person may change what is in it, and not itself.
func TestObjectsOfAPerson(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	me.Username, me.Uid, me.Gid, me.HomeDir = "alice", "1001", "1001", "/home/alice"
	objects, err := objectsOf(me, "/x/root")
	if err != nil {
		t.Fatal(err)
	}
	space := objects[0]
	if space.GetKind() != "Namespace" || space.GetLabels()["elasticai.io/person"] != "true" || space.GetAnnotations()["elasticai.io/uid"] != "1001" ||
		space.GetAnnotations()["elasticai.io/home"] != "/home/alice" || space.GetAnnotations()["elasticai.io/host-root"] != "/x/root" {
		t.Errorf("%v", space)
	}
	for _, o := range objects[1:] {
		if o.GetKind() != "ClusterRoleBinding" && o.GetNamespace() != "alice" {
			t.Errorf("%s %s is in %q", o.GetKind(), o.GetName(), o.GetNamespace())
		}
	}
}

// Without the program that asks the driver nothing is known of the driver, so that the advice is to build the program.
func TestCardsWithoutTheAgent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if need := cardsNeeded(t.Context()); need.Met || need.Do != programsNeeded().Do {
		t.Errorf("%+v", need)
	}
}
