package claims

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// farUser is a pod on a node that uses claim c.
func farUser(name, job, asked string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{egpu.ClaimPrefix + "main": "c"}}}
	pod.Spec.NodeName, pod.Spec.Containers = "elsewhere", []corev1.Container{{Name: "main"}}
	for key, value := range map[string]string{kueue.WorkloadAnnotation: job, egpu.SwapAnnotation: asked} {
		if value != "" {
			pod.Annotations[key] = value
		}
	}
	return pod
}

func moved(status corev1.ConditionStatus, reason string) []corev1.PodCondition {
	return []corev1.PodCondition{{Type: egpu.SwappedOut, Status: status, Reason: reason}}
}

// Where a server is to be: off the card if all who use it are to be off theirs.
func TestWhereAServerGoes(t *testing.T) {
	const out, in = egpu.SwapOut, egpu.SwapIn
	pending, ended := farUser("pending", "j", ""), farUser("ended", "j", "")
	pending.Spec.NodeName, ended.Status.Phase = "", corev1.PodFailed
	for name, test := range map[string]struct {
		users      []*corev1.Pod
		asked      string
		conditions []corev1.PodCondition
		want       string
	}{
		"nobody uses it":                    {want: ""},
		"one stays":                         {users: []*corev1.Pod{farUser("a", "j", "")}, want: ""},
		"one leaves":                        {users: []*corev1.Pod{farUser("a", "j", out)}, want: out},
		"one of two leaves":                 {users: []*corev1.Pod{farUser("a", "j", out), farUser("b", "j", "")}, want: ""},
		"both leave":                        {users: []*corev1.Pod{farUser("a", "j", out), farUser("b", "k", out)}, want: out},
		"who does not run yet, and who has": {users: []*corev1.Pod{farUser("a", "j", out), pending, ended}, want: out},
		"one comes back":                    {users: []*corev1.Pod{farUser("a", "j", out), farUser("b", "j", in)}, asked: out, conditions: moved(corev1.ConditionTrue, egpu.ReasonMovedOut), want: in},
		"one has come":                      {users: []*corev1.Pod{farUser("a", "j", out), farUser("b", "k", "")}, asked: out, conditions: moved(corev1.ConditionTrue, egpu.ReasonMovedOut), want: in},
		"those who left are gone":           {asked: out, conditions: moved(corev1.ConditionTrue, egpu.ReasonMovedOut), want: in},
		"it is on its way back":             {users: []*corev1.Pod{farUser("a", "j", in)}, asked: in, conditions: moved(corev1.ConditionTrue, egpu.ReasonMovedOut), want: in},
		"its card is full":                  {users: []*corev1.Pod{farUser("a", "j", in)}, asked: in, conditions: moved(corev1.ConditionTrue, egpu.ReasonCannotMoveIn), want: in},
		"it is back":                        {users: []*corev1.Pod{farUser("a", "j", in)}, asked: in, conditions: moved(corev1.ConditionFalse, egpu.ReasonMovedIn), want: ""},
		"it could not leave":                {users: []*corev1.Pod{farUser("a", "j", "")}, asked: out, conditions: moved(corev1.ConditionFalse, egpu.ReasonCannotMoveOut), want: in},
		"it left after it was told not to":  {users: []*corev1.Pod{farUser("a", "j", "")}, conditions: moved(corev1.ConditionTrue, egpu.ReasonMovedOut), want: in},
		"it is idle":                        {users: []*corev1.Pod{farUser("a", "j", "")}, conditions: moved(corev1.ConditionTrue, egpu.ReasonIdle), want: ""},
	} {
		server := &corev1.Pod{}
		server.Status.Conditions = test.conditions
		if test.asked != "" {
			server.Annotations = map[string]string{egpu.SwapAnnotation: test.asked}
		}
		var users []*corev1.Pod
		for _, pod := range test.users {
			if isUser(pod) {
				users = append(users, pod)
			}
		}
		if got := whereTo(users, server); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Several jobs that use a server are named, the pods of one are not, and a message has an end.
func TestJobsThatShareAServer(t *testing.T) {
	group := farUser("g", "", "")
	group.Labels = map[string]string{kueuelabels.PodGroupName: "j"}
	many := []*corev1.Pod{}
	for i := range 9 {
		many = append(many, farUser(fmt.Sprint("p", i), "", ""))
	}
	for want, users := range map[string][]*corev1.Pod{
		"":                                   {farUser("a", "j", ""), farUser("b", "j", ""), group},
		"pods of 2 jobs use its claim: a, c": {farUser("b", "j", ""), farUser("a", "j", ""), farUser("c", "", "")},
		"pods of 9 jobs use its claim: p0, p1, p2, p3 and others": many,
	} {
		if got := sharedBy(users); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is written on the pods that use a claim is written on its server, once, and on no other.
func TestServerFollowsThoseWhoUseIt(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}, Spec: egpu.ElasticGPUClaimSpec{ElasticGPUName: "e"}}
	claim.Status.Remote = true
	device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Status: egpu.ElasticGPUStatus{Phase: egpu.GPUBound}}
	device.Spec.RemoteGPU, device.Spec.ClaimRef = &egpu.RemoteGPUSource{NodeName: "n", GPUName: "n-0"}, refTo(claim)
	server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "remote-e", Annotations: map[string]string{egpu.ServesAnnotation: "e"}}}
	one, other, forged := farUser("one", "j", ""), farUser("other", "j", ""), farUser("forged", "x", egpu.SwapOut)
	forged.Namespace = "others"
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(device, server).WithObjects(claim, device, server, one, other, forged).
		WithIndex(&corev1.Pod{}, usesClaim, claimsUsed).Build()
	d := &deviceController{Client: c, direct: c, servers: Servers{Namespace: "system"}, events: events.NewFakeRecorder(100)}
	is := func(what, want string) {
		t.Helper()
		if _, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(device)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(server), server); err != nil {
			t.Fatal(err)
		}
		if got := server.Annotations[egpu.SwapAnnotation]; got != want || server.Annotations[egpu.ServesAnnotation] != "e" {
			t.Fatalf("%s: the server has %v, want %q", what, server.Annotations, want)
		}
	}
	tell := func(pod *corev1.Pod, where string) {
		t.Helper()
		was := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, egpu.SwapAnnotation, where)
		if err := c.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if !moves.UpdateFunc(event.UpdateEvent{ObjectOld: was, ObjectNew: pod}) {
			t.Error("nobody hears of it")
		}
		if requests := d.devicesOfPod(t.Context(), pod); len(requests) != 1 || requests[0].Name != "e" {
			t.Errorf("the event is about %v", requests)
		}
	}
	is("nobody leaves", "")
	tell(one, egpu.SwapOut)
	is("one leaves", "")
	tell(other, egpu.SwapOut)
	is("both leave", egpu.SwapOut)
	version := server.ResourceVersion
	is("again", egpu.SwapOut)
	if server.ResourceVersion != version {
		t.Error("it was written again")
	}
	tell(other, egpu.SwapIn)
	is("one comes back", egpu.SwapIn)
	server.Status.Conditions = moved(corev1.ConditionFalse, egpu.ReasonMovedIn)
	if err := c.Status().Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	is("it is back", "")
	if len(d.devicesOfPod(t.Context(), forged)) != 0 {
		t.Error("a pod of another namespace moves it")
	}
	if was := one.DeepCopy(); moves.UpdateFunc(event.UpdateEvent{ObjectOld: was, ObjectNew: one}) {
		t.Error("an update that changes nothing is looked at")
	}
}
