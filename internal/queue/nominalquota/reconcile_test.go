package nominalquota

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/quotarules"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// cluster is one ClusterQueue that follows two nodes of eight cards with a grace of ten minutes.
type cluster struct {
	t      *testing.T
	client client.Client
	quotas *quotas
	time   time.Time
	// meanwhile is done once, between what the controller has read and what it writes.
	meanwhile func()
}

func newCluster(t *testing.T) *cluster {
	scheme := runtime.NewScheme()
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	c := &cluster{t: t, time: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{gpu},
		Flavors:          []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse("100")}}}},
	}}}}
	policy := &v1alpha1.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: v1alpha1.QueuePolicySpec{
		TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindClusterQueue, Name: "cq"}},
		Quota:      &v1alpha1.Quota{ShareOfNodes: ptr.To[int32](100), Grace: ptr.To(v1alpha1.Duration("10m"))},
	}}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).
		WithObjects(cq, policy, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}, newNode("n0"), newNode("n1")).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, under client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if do := c.meanwhile; do != nil {
				c.meanwhile = nil
				do()
			}
			return under.Patch(ctx, obj, patch, opts...)
		}}).Build()
	c.restart()
	return c
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{gpu: resource.MustParse("8")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

// restart is another leader's controller, which knows what is stored alone.
func (c *cluster) restart() {
	c.quotas = &quotas{client: c.client, recorder: events.NewFakeRecorder(100), now: func() time.Time { return c.time }, watchNodes: func() error { return nil }}
}

func (c *cluster) queue() *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: "cq"}, cq); err != nil {
		c.t.Fatal(err)
	}
	return cq
}

// look has the controller look, and says what the quota is then and when it looks again.
func (c *cluster) look(after time.Duration) (quota string, again time.Duration, err error) {
	c.time = c.time.Add(after)
	result, err := c.quotas.Reconcile(context.Background(), reconcile.Request{})
	q := c.queue().Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota
	return q.String(), result.RequeueAfter, err
}

func (c *cluster) expect(after time.Duration, want string, wantAgain time.Duration) {
	c.t.Helper()
	if quota, again, err := c.look(after); err != nil || quota != want || again != wantAgain {
		c.t.Fatalf("%s, again in %s, %v; want %s, %s", quota, again, err, want, wantAgain)
	}
}

func (c *cluster) lose(node string) {
	c.change(node, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
}

func (c *cluster) change(node string, how func(*corev1.Node)) {
	n := &corev1.Node{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: node}, n); err != nil {
		c.t.Fatal(err)
	}
	how(n)
	if err := c.client.Status().Update(context.Background(), n); err != nil {
		c.t.Fatal(err)
	}
}

// A lost node counts for its grace, whichever replica leads when it ends, and no longer for that.
func TestGraceOutlivesTheProgram(t *testing.T) {
	c := newCluster(t)
	c.expect(0, "16", 0)
	c.lose("n1")
	c.expect(time.Minute, "16", 10*time.Minute)
	c.restart()
	c.expect(4*time.Minute, "16", 6*time.Minute)
	c.restart()
	c.expect(6*time.Minute, "8", 0)

	// Nobody leads while the grace of the next ends.
	c.lose("n0")
	c.expect(time.Minute, "8", 10*time.Minute)
	c.restart()
	c.expect(time.Hour, "0", 0)
	c.change("n0", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
	c.expect(time.Minute, "8", 0)
}

// Looks that come one after the other are one: nodes report often.
func TestLooksAreApart(t *testing.T) {
	c := newCluster(t)
	c.expect(0, "16", 0)
	c.lose("n1")
	if _, again, err := c.look(100 * time.Millisecond); err != nil || again != 900*time.Millisecond {
		t.Errorf("again in %s, %v", again, err)
	}
}

// Who declares a quota while another one is being written is heard: that write fails, and what was declared is what comes
// back with the last policy.
func TestQuotaDeclaredMeanwhile(t *testing.T) {
	c := newCluster(t)
	c.meanwhile = func() {
		cq := c.queue()
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("50")
		if err := c.client.Update(context.Background(), cq); err != nil {
			t.Fatal(err)
		}
	}
	if quota, _, err := c.look(0); !apierrors.IsConflict(err) || quota != "50" {
		t.Fatalf("%s, %v", quota, err)
	}
	c.expect(time.Minute, "16", 0)
	if err := c.client.DeleteAllOf(context.Background(), &v1alpha1.QueuePolicy{}); err != nil {
		t.Fatal(err)
	}
	c.restart()
	c.expect(time.Minute, "50", 0)
	if c.queue().Annotations[quotarules.Annotation] != "" {
		t.Errorf("left behind: %v", c.queue().Annotations)
	}

	// A ClusterQueue that is deleted meanwhile is nobody's any more.
	c = newCluster(t)
	c.meanwhile = func() { _ = c.client.Delete(context.Background(), c.queue()) }
	c.time = c.time.Add(time.Minute)
	if _, err := c.quotas.Reconcile(context.Background(), reconcile.Request{}); err != nil {
		t.Error(err)
	}
}
