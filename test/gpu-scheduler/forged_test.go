package gpuscheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/test/sandbox"
)

func refused(t *testing.T, what string, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want it refused with %q", what, err, says)
	}
}

// Not even an administrator writes what only the GPU scheduler writes: at the pod's creation, later, or
// with a Binding of their own.
func forgedCardsAreRefused(t *testing.T) {
	ns := cluster.Namespace(t)
	const says = "only the GPU scheduler writes it"
	for key := range map[string]bool{egpu.Assumed: true, container: true, egpu.ContainerPrefix + "other": true} {
		p := pod(ns, "made", egpu.ResourceCore, 10)
		p.Annotations[key] = "1"
		refused(t, "a pod made with annotation "+key, cluster.Create(t.Context(), p), says)
	}
	for _, key := range []string{egpu.Assumed, gpu.RetryLabel} {
		p := pod(ns, "made", egpu.ResourceCore, 10)
		p.Labels = map[string]string{key: "1"}
		refused(t, "a pod made with label "+key, cluster.Create(t.Context(), p), says)
	}
	p := pod(ns, "bound", egpu.ResourceCore, 10)
	cluster.Make(t, p)
	running(t, p)
	patch := func(what string, change func(*corev1.Pod), says string) {
		t.Helper()
		changed := p.DeepCopy()
		change(changed)
		refused(t, what, cluster.Patch(t.Context(), changed, client.MergeFrom(p)), says)
		changed = p.DeepCopy()
		change(changed)
		refused(t, what+" with its status", cluster.Status().Patch(t.Context(), changed, client.MergeFrom(p)), says)
	}
	patch("another card", func(p *corev1.Pod) { p.Annotations[container] = "7" }, says)
	patch("a container more", func(p *corev1.Pod) { p.Annotations[egpu.ContainerPrefix+"x"] = "7" }, says)
	patch("no card", func(p *corev1.Pod) { delete(p.Annotations, container) }, says)
	patch("no label", func(p *corev1.Pod) { delete(p.Labels, egpu.Assumed) }, says)
	changed := p.DeepCopy()
	changed.Annotations["example.com/note"], changed.Labels["example.com/note"] = "mine", "mine"
	if err := cluster.Patch(t.Context(), changed, client.MergeFrom(p)); err != nil {
		t.Errorf("an annotation and a label of the author's own: %v", err)
	}

	waits := pod(ns, "waits", egpu.ResourceCore, 10)
	waits.Spec.NodeSelector = map[string]string{"example.com/no-such": "node"}
	cluster.Make(t, waits)
	bind := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: waits.Name, Annotations: map[string]string{container: "0"}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "a100-40g-0"},
	}
	refused(t, "a Binding", cluster.SubResource("binding").Create(t.Context(), waits, bind), says)
	refused(t, "a Binding of the old kind", cluster.Create(t.Context(), bind), says)
}

// A pod made with a node is counted, so that its card is not given to others by mistake, and the record
// says that this is a guess.
func podThatNobodyBoundGetsNoRecord(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "placed", egpu.ResourceCore, 10)
	p.Spec.NodeName = "a100-40g-0"
	cluster.Make(t, p)
	ours := pod(ns, "ours", egpu.ResourceCore, 10)
	ours.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a100-40g-0"}
	cluster.Make(t, ours)
	running(t, ours)
	for _, want := range []struct {
		pod     *corev1.Pod
		guessed bool
	}{{p, true}, {ours, false}} {
		sandbox.Eventually(t, want.pod.Name+" is recorded", func(ctx context.Context) error {
			gpus := &egpu.GPUList{}
			if err := cluster.List(ctx, gpus); err != nil {
				return err
			}
			for i := range gpus.Items {
				r := gpus.Items[i].Status.Allocated[ns+"/"+want.pod.Name]
				if r != nil && r.UID == want.pod.UID && r.Guessed == want.guessed {
					return nil
				}
			}
			return fmt.Errorf("no GPU object names it with guessed %v", want.guessed)
		})
	}
}

// The author of a claim names an ElasticGPU that is another's, larger than what is asked for, or of another class.
func foreignElasticGPUIsRefused(t *testing.T) {
	ns, other := cluster.Namespace(t), cluster.Namespace(t)
	theirs := claim(other, "theirs", 20)
	cluster.Make(t, class(other, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindImmediate), theirs)
	cluster.Make(t, class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindWaitForFirstConsumer))
	waitClaim(t, theirs, egpu.ClaimBound, "")
	free := func(name, class string) *egpu.ElasticGPU {
		d := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name, Annotations: map[string]string{egpu.CardsAnnotation: "1"}}}
		d.Spec.Capacity = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("40")}
		d.Spec.GPUShare, d.Spec.ElasticGPUClassName = &egpu.GPUShareSource{GPUName: "a100-40g-1-1"}, class
		cluster.Make(t, d)
		return d
	}
	large, odd := free("large", ns), free("odd", other)
	for name, want := range map[string]string{
		theirs.Spec.ElasticGPUName: "belongs to claim " + other + "/theirs",
		large.Name:                 "more than the claim asks for",
		odd.Name:                   "is of class",
	} {
		c := claim(ns, "c-"+name[len(name)-4:], 20)
		c.Spec.ElasticGPUName = name
		cluster.Make(t, c)
		waitClaim(t, c, egpu.ClaimPending, want)
		p := user(ns, "u-"+c.Name, c.Name)
		cluster.Make(t, p)
		if message := unschedulable(t, p); !strings.Contains(message, "claim "+c.Name) {
			t.Errorf("a pod with the claim of %s waits for %q", name, message)
		}
	}
	right := claim(ns, "right", 40)
	right.Spec.ElasticGPUName = large.Name
	cluster.Make(t, right)
	waitClaim(t, right, egpu.ClaimBound, "")
}

func claimStaysWithItsElasticGPU(t *testing.T) {
	ns := cluster.Namespace(t)
	mine, theirs := claim(ns, "mine", 20), claim(ns, "theirs", 20)
	cluster.Make(t, class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindImmediate), mine, theirs)
	waitClaim(t, mine, egpu.ClaimBound, "")
	waitClaim(t, theirs, egpu.ClaimBound, "")
	changed := mine.DeepCopy()
	changed.Spec.ElasticGPUName = theirs.Spec.ElasticGPUName
	refused(t, "another name", cluster.Patch(t.Context(), changed, client.MergeFrom(mine)), "stays with the ElasticGPU it has")
	changed = mine.DeepCopy()
	changed.Spec.ElasticGPUName = ""
	refused(t, "no name", cluster.Patch(t.Context(), changed, client.MergeFrom(mine)), "stays with the ElasticGPU it has")
	changed = mine.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, egpu.SelectedNodeAnnotation, "a100-40g-0")
	refused(t, "a node for provisioners", cluster.Patch(t.Context(), changed, client.MergeFrom(mine)), "written by the GPU scheduler")
	d := device(t, theirs)
	moved := d.DeepCopy()
	moved.Spec.ClaimRef.Name, moved.Spec.ClaimRef.UID = mine.Name, mine.UID
	refused(t, "another claim's ElasticGPU", cluster.Patch(t.Context(), moved, client.MergeFrom(d)), "remove claimRef first")
}

// The token of one node's agent is worth nothing elsewhere.
func agentWritesAboutItsNodeAlone(t *testing.T) {
	const mine, other = "a100-40g-0", "a100-40g-1"
	agent, nowhere := agentOf(t, mine), agentOf(t, "")
	get := func(object client.Object, name string) {
		t.Helper()
		if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: object.GetNamespace(), Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	status := func(c client.Client, node string, change func(*egpu.GPU)) error {
		g := &egpu.GPU{}
		get(g, node+"-0")
		changed := g.DeepCopy()
		change(changed)
		return c.Status().Patch(t.Context(), changed, client.MergeFrom(g))
	}
	power := func(g *egpu.GPU) { g.Status.Load = &egpu.GPULoad{Core: 1, Memory: 1, Power: 111} }
	if err := status(agent, mine, power); err != nil {
		t.Errorf("its own card: %v", err)
	}
	refused(t, "another node's card", status(agent, other, power), "writes about that node alone")
	refused(t, "a token that says no node", status(nowhere, mine, power), "does not say on which node")
	refused(t, "who has its card", status(agent, mine, func(g *egpu.GPU) {
		g.Status.Allocated = map[string]*egpu.PodResource{"team/forged": {UID: "u"}}
	}), "written by the GPU scheduler alone")
	g := &egpu.GPU{}
	get(g, other+"-0")
	refused(t, "deleting another node's card", agent.Delete(t.Context(), g), "writes about that node alone")
	g = &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "forged"}, Spec: egpu.GPUSpec{NodeName: other}}
	refused(t, "making a card of another node", agent.Create(t.Context(), g), "writes about that node alone")
	g = &egpu.GPU{}
	get(g, mine+"-0")
	moved := g.DeepCopy()
	moved.Spec.NodeName = other
	refused(t, "moving a card to another node", agent.Patch(t.Context(), moved, client.MergeFrom(g)), "writes about that node alone")

	for node, says := range map[string]string{mine: "", other: "writes about that node alone"} {
		n := &corev1.Node{}
		get(n, node)
		changed := n.DeepCopy()
		changed.Status.Capacity["example.com/probe"] = resource.MustParse("1")
		err := agent.Status().Patch(t.Context(), changed, client.MergeFrom(n))
		if says == "" && err != nil {
			t.Errorf("its own node's status: %v", err)
		} else if says != "" {
			refused(t, "another node's status", err, says)
		}
	}
	ns := cluster.Namespace(t)
	for node, says := range map[string]string{mine: "", other: "writes about that node alone"} {
		p := pod(ns, "on-"+node)
		p.Spec.NodeName = node
		cluster.Make(t, p)
		running(t, p)
		changed := p.DeepCopy()
		changed.Status.Conditions = append(changed.Status.Conditions, corev1.PodCondition{Type: egpu.SwappedOut, Status: corev1.ConditionFalse})
		err := agent.Status().Patch(t.Context(), changed, client.StrategicMergeFrom(p))
		if says == "" && err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("a pod of its own: %v", err)
		} else if says != "" {
			refused(t, "another node's pod", err, says)
		}
	}
}

// The queue makes one webhook while it runs. With its token nobody makes another, which would see every object.
func queueMakesNoOtherWebhook(t *testing.T) {
	config := rest.CopyConfig(cluster.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:elastic-queue:elastic-queue"}
	queue, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	hook := &admissionregv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "elastic-queue-mine"}}
	refused(t, "another webhook", queue.Create(t.Context(), hook), "and no other")
	hook.Name = "elastic-queue-jobs-declared"
	if err := queue.Create(t.Context(), hook); client.IgnoreAlreadyExists(err) != nil {
		t.Errorf("its own webhook: %v", err)
	} else if err == nil {
		remove(t, hook)
	}
}

// agentOf a node: a client with a token as its pod there has, or as no pod has.
func agentOf(t *testing.T, node string) client.Client {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		on := &corev1.Node{}
		if err := cluster.Get(t.Context(), client.ObjectKey{Name: node}, on); err != nil {
			t.Fatal(err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: on.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: "elastic-gpu-agent"}}
	if err := cluster.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(cluster.REST)
	config.BearerToken = request.Status.Token
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
