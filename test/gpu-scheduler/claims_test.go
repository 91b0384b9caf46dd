package gpuscheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// class of shares; its name is the namespace's, so that tests do not meet.
func class(ns, provisioner string, reclaim egpu.ReclaimPolicy, mode egpu.BindingMode) *egpu.ElasticGPUClass {
	return &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Provisioner: provisioner, ReclaimPolicy: reclaim, EGPUBindingMode: mode}
}

func claim(ns, name string, core int64) *egpu.ElasticGPUClaim {
	return &egpu.ElasticGPUClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: egpu.ElasticGPUClaimSpec{
			ElasticGPUClassName: &ns,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				egpu.ResourceCore: *resource.NewQuantity(core, resource.DecimalSI),
			}},
		},
	}
}

// user is a pod that uses a claim.
func user(ns, name, claim string) *corev1.Pod {
	p := pod(ns, name)
	p.Annotations[egpu.ClaimPrefix+"any"] = claim
	return p
}

func waitClaim(t *testing.T, c *egpu.ElasticGPUClaim, phase egpu.ElasticGPUClaimPhase, message string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("claim %s is %s", c.Name, phase), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if c.Status.Phase != phase || !strings.Contains(c.Status.Message, message) {
			return fmt.Errorf("it is %s: %s", c.Status.Phase, c.Status.Message)
		}
		return nil
	})
}

// device of a claim.
func device(t *testing.T, c *egpu.ElasticGPUClaim) *egpu.ElasticGPU {
	t.Helper()
	d := &egpu.ElasticGPU{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: c.Spec.ElasticGPUName}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func waitPhase(t *testing.T, d *egpu.ElasticGPU, phase egpu.ElasticGPUPhase) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("ElasticGPU %s is %s", d.Name, phase), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.Phase != phase {
			return fmt.Errorf("it is %s: %s", d.Status.Phase, d.Status.Message)
		}
		return nil
	})
}

func waitGone(t *testing.T, object client.Object) {
	t.Helper()
	sandbox.Eventually(t, object.GetName()+" is gone", func(ctx context.Context) error {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it is there: %+v", object)
		}
		return client.IgnoreNotFound(err)
	})
}

// The first examples of these objects, in the version and spelling they were written in.
func firstExamplesWork(t *testing.T) {
	ns := cluster.Namespace(t)
	objects, err := deploy.Sample("gpu-claims")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "ElasticGPUClass" {
			object.SetNamespace(ns)
		}
		cluster.Make(t, object)
	}
	for i := range 2 {
		c := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("gpushare-egpuc-", i+1)}}
		waitClaim(t, c, egpu.ClaimBound, "")
		d := device(t, c)
		t.Cleanup(func() { _ = cluster.Delete(context.Background(), d) }) // it is retained
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("test-cuda-", i+1)}}
		running(t, p)
		if got := p.Annotations[egpu.ContainerPrefix+"test-cuda"]; got == "" || got != d.Annotations[egpu.CardsAnnotation] {
			t.Errorf("pod %s has card %q, its claim %q", p.Name, got, d.Annotations[egpu.CardsAnnotation])
		}
		if d.Spec.GPUShare == nil || !strings.HasPrefix(d.Spec.GPUShare.GPUName, p.Spec.NodeName) {
			t.Errorf("the pod is on node %s, its share %+v", p.Spec.NodeName, d.Spec.GPUShare)
		}
	}
}

func claimWaitsForItsFirstConsumer(t *testing.T) {
	ns := cluster.Namespace(t)
	c := claim(ns, "late", 40)
	cluster.Make(t, class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindWaitForFirstConsumer), c)
	waitClaim(t, c, egpu.ClaimPending, "first pod that uses it")
	p := user(ns, "consumer", "late")
	p.Spec.NodeSelector = map[string]string{egpu.ModelLabel: "A100-40G"}
	cluster.Make(t, p)
	running(t, p)
	waitClaim(t, c, egpu.ClaimBound, "")
	d := device(t, c)
	if node := d.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchFields[0].Values[0]; node != p.Spec.NodeName {
		t.Errorf("the pod is on node %s, its ElasticGPU on %s", p.Spec.NodeName, node)
	}
	if p.Annotations[container] != d.Annotations[egpu.CardsAnnotation] {
		t.Errorf("the pod has card %s, its ElasticGPU %s", p.Annotations[container], d.Annotations[egpu.CardsAnnotation])
	}
	// A claim that is used stays until no pod uses it.
	if err := cluster.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	waitClaim(t, c, egpu.ClaimBound, "no pod uses it any more: consumer")
	remove(t, p)
	waitGone(t, c)
	waitGone(t, d)
	waitGPU(t, d.Spec.GPUShare.GPUName, func(g *egpu.GPU) bool { return len(g.Status.Allocated) == 0 })
}

func claimIsShared(t *testing.T) {
	ns := cluster.Namespace(t)
	c, first, second := claim(ns, "shared", 70), user(ns, "first", "shared"), user(ns, "second", "shared")
	cluster.Make(t, class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindImmediate), c, first, second)
	running(t, first)
	running(t, second)
	if first.Spec.NodeName != second.Spec.NodeName || first.Annotations[container] != second.Annotations[container] {
		t.Errorf("%s/%s and %s/%s: want one card for both", first.Spec.NodeName, first.Annotations[container],
			second.Spec.NodeName, second.Annotations[container])
	}
	waitClaim(t, c, egpu.ClaimBound, "")
	waitGPU(t, device(t, c).Spec.GPUShare.GPUName, func(g *egpu.GPU) bool { return len(g.Status.Allocated) == 1 })
	remove(t, first, second)
}

func retainedElasticGPUIsOfferedAgain(t *testing.T) {
	ns := cluster.Namespace(t)
	c := claim(ns, "first", 20)
	cluster.Make(t, class(ns, egpu.ProvisionerShare, egpu.ReclaimRetain, egpu.BindImmediate), c)
	waitClaim(t, c, egpu.ClaimBound, "")
	d := device(t, c)
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), d) })
	remove(t, c)
	waitPhase(t, d, egpu.GPUReleased)
	before := d.DeepCopy()
	d.Spec.ClaimRef = nil
	if err := cluster.Patch(t.Context(), d, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	waitPhase(t, d, egpu.GPUAvailable)
	again := claim(ns, "second", 10)
	cluster.Make(t, again)
	waitClaim(t, again, egpu.ClaimBound, "")
	if again.Status.Remote {
		t.Error("the second claim says that its card is used over the network")
	}
	if again.Spec.ElasticGPUName != d.Name {
		t.Errorf("the second claim has %s, and %s was free", again.Spec.ElasticGPUName, d.Name)
	}
	// Its ElasticGPU is taken away: the claim says so.
	remove(t, d)
	waitClaim(t, again, egpu.ClaimLost, "is gone")
}

// A provisioner out of tree needs nothing but the objects.
func provisionerOutOfTree(t *testing.T) {
	ns := cluster.Namespace(t)
	const name = "remote.provisioner.example.com"
	now, later := claim(ns, "now", 20), claim(ns, "later", 20)
	waits := class(ns+"-waits", name, egpu.ReclaimDelete, egpu.BindWaitForFirstConsumer)
	later.Spec.ElasticGPUClassName = &waits.Name
	cluster.Make(t, class(ns, name, egpu.ReclaimDelete, egpu.BindImmediate), waits, now, later)
	waitClaim(t, now, egpu.ClaimPending, "waits for "+name)
	if now.Annotations[egpu.ProvisionerAnnotation] != name {
		t.Fatalf("annotations %v: they do not name the provisioner", now.Annotations)
	}
	provision := func(c *egpu.ElasticGPUClaim) *egpu.ElasticGPU {
		d := &egpu.ElasticGPU{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + c.Name},
			Spec: egpu.ElasticGPUSpec{
				ElasticGPUSource: egpu.ElasticGPUSource{RemoteGPU: &egpu.RemoteGPUSource{Address: "10.0.0.1:7777"}},
				ClaimRef:         &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
				Capacity:         c.Spec.Resources.Requests, ElasticGPUClassName: c.ClassName(), ReclaimPolicy: egpu.ReclaimDelete,
			},
		}
		cluster.Make(t, d)
		return d
	}
	d := provision(now)
	waitClaim(t, now, egpu.ClaimBound, "")
	if !now.Status.Remote {
		t.Error("the claim does not say that its card is used over the network")
	}
	remove(t, now)
	waitPhase(t, d, egpu.GPUReleased) // deleting it is its provisioner's work

	p := user(ns, "consumer", "later")
	cluster.Make(t, p)
	sandbox.Eventually(t, "the node is named for the provisioner", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(later), later); err != nil {
			return err
		}
		if later.Annotations[egpu.SelectedNodeAnnotation] == "" {
			return fmt.Errorf("annotations %v", later.Annotations)
		}
		return nil
	})
	provision(later)
	running(t, p)
}

func claimThatCannotBeServedSaysWhy(t *testing.T) {
	ns := cluster.Namespace(t)
	odd, large, lost := claim(ns, "odd", 150), claim(ns, "large", 50), claim(ns, "lost", 50)
	large.Spec.Resources.Requests[egpu.ResourceMemory] = resource.MustParse("200000")
	nowhere := "no-such-class"
	lost.Spec.ElasticGPUClassName = &nowhere
	cluster.Make(t, class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindImmediate), odd, large, lost)
	waitClaim(t, odd, egpu.ClaimPending, "write 100 or 200")
	waitClaim(t, large, egpu.ClaimPending, "no card of the wanted model, memory or speed")
	waitClaim(t, lost, egpu.ClaimPending, "there is no ElasticGPUClass no-such-class")
	p := user(ns, "user", "large")
	cluster.Make(t, p)
	if message := unschedulable(t, p); !strings.Contains(message, "claim large: it has no ElasticGPU yet") {
		t.Errorf("the reason is %q", message)
	}
}
