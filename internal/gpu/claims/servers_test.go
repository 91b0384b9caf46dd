package claims

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

func TestClassSaysHowFarCardsMayBe(t *testing.T) {
	for name, test := range map[string]struct {
		parameters  map[string]string
		provisioner string
		want        []string
		bad         bool
	}{
		"not from afar":     {},
		"not said":          {parameters: map[string]string{"sharing": "remote"}, want: []string{"topology.kubernetes.io/zone", "any"}},
		"labels":            {parameters: map[string]string{"sharing": "remote", "distance": "rack, zone"}, want: []string{"rack", "zone"}},
		"anywhere":          {parameters: map[string]string{"sharing": "remote", "distance": "any"}, want: []string{"any"}},
		"any in the middle": {parameters: map[string]string{"sharing": "remote", "distance": "any,zone"}, bad: true},
		"empty":             {parameters: map[string]string{"sharing": "remote", "distance": "rack,"}, bad: true},
		"too many":          {parameters: map[string]string{"sharing": "remote", "distance": "a,b,c,d,e,f,g,h,i"}, bad: true},
		"whole cards":       {parameters: map[string]string{"sharing": "remote"}, provisioner: egpu.ProvisionerWhole, bad: true},
		"another backend":   {parameters: map[string]string{"sharing": "remote", "backend": "mig"}, bad: true},
	} {
		class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: egpu.ProvisionerShare, Parameters: test.parameters}
		if test.provisioner != "" {
			class.Provisioner = test.provisioner
		}
		if levels, err := Levels(class); (err != nil) != test.bad || !slices.Equal(levels, test.want) {
			t.Errorf("%s: %v %v", name, levels, err)
		}
	}
}

// What is said of a server, after what was said of it before.
func TestStatusOfAServer(t *testing.T) {
	ready := func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	const serves = "pod system/remote-x serves it on node n since 2001-09-09T01:46:40Z"
	for name, test := range map[string]struct {
		was       egpu.ElasticGPUStatus
		pod       func(*corev1.Pod)
		reason    string
		lost      bool
		mentioned string
	}{
		"new":                {pod: func(*corev1.Pod) {}, reason: "ServerNotReady", mentioned: "is not ready"},
		"ready":              {was: egpu.ElasticGPUStatus{Reason: "ServerNotReady"}, pod: ready, reason: "Served", mentioned: serves},
		"as before":          {was: egpu.ElasticGPUStatus{Reason: "Served", Message: serves}, pod: ready, reason: "Served", mentioned: serves},
		"made by one before": {was: egpu.ElasticGPUStatus{}, pod: ready, reason: "Served", mentioned: serves},
		"another":            {was: egpu.ElasticGPUStatus{Reason: "Served", Message: "another"}, pod: ready, reason: "Served", lost: true, mentioned: serves},
		"being deleted": {was: egpu.ElasticGPUStatus{Reason: "Served", Message: serves}, pod: func(pod *corev1.Pod) {
			ready(pod)
			pod.DeletionTimestamp = &metav1.Time{}
		}, reason: "ServerLost", lost: true, mentioned: "is being deleted"},
		"killed": {was: egpu.ElasticGPUStatus{Reason: "Served", Message: serves}, pod: func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}
		}, reason: "ServerLost", lost: true, mentioned: "ended: OOMKilled, exit code 137"},
		"has left the card": {was: egpu.ElasticGPUStatus{Reason: "Served", Message: serves}, pod: func(pod *corev1.Pod) {
			ready(pod)
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: egpu.ReasonMovedOut, Message: "200 MiB"})
		}, reason: "SwappedOut", mentioned: serves + "; what it had on the card is on the host: 200 MiB"},
		"is idle": {was: egpu.ElasticGPUStatus{Reason: "Served", Message: serves}, pod: func(pod *corev1.Pod) {
			ready(pod)
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: egpu.ReasonIdle})
		}, reason: "Served", mentioned: serves},
		"is back":            {was: egpu.ElasticGPUStatus{Reason: "SwappedOut", Message: serves + "; what"}, pod: ready, reason: "Served", mentioned: serves},
		"another comes back": {was: egpu.ElasticGPUStatus{Reason: "SwappedOut", Message: "another; what"}, pod: ready, reason: "Served", lost: true, mentioned: serves},
		"lost while it was out": {
			was: egpu.ElasticGPUStatus{Reason: "SwappedOut", Message: serves + "; what"}, pod: func(*corev1.Pod) {}, reason: "ServerLost", lost: true, mentioned: "is not ready",
		},
		"still lost": {was: egpu.ElasticGPUStatus{Reason: "ServerLost"}, pod: func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: "no such image"}}}}
		}, reason: "ServerLost", mentioned: "is not ready: no such image"},
		"there again": {was: egpu.ElasticGPUStatus{Reason: "ServerLost"}, pod: ready, reason: "Served", mentioned: serves},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "remote-x", CreationTimestamp: metav1.Unix(1e9, 0)}}
		pod.Spec.NodeName = "n"
		test.pod(pod)
		reason, message, lost := serverStatus(test.was, pod)
		if reason != test.reason || !strings.Contains(message, test.mentioned) || (lost != "") != test.lost || test.lost && !strings.Contains(lost, test.mentioned) {
			t.Errorf("%s: %s %q, lost %q", name, reason, message, lost)
		}
	}
}

// No client makes the node run out of memory, and what the share has on the card can be moved there.
func TestMemoryOfAServer(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "n-0"}, Spec: egpu.GPUSpec{Memory: 80 << 10}}).Build()
	for name, test := range map[string]struct {
		engine, share, want string
	}{
		"by default":      {share: "4096", want: "20Gi"},
		"as written":      {engine: "1536Mi", share: "512", want: "2Gi"},
		"no memory asked": {want: "96Gi"},
		"all of the card": {engine: "2Gi", share: "81920", want: "82Gi"},
	} {
		device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
		device.Spec.RemoteGPU = &egpu.RemoteGPUSource{NodeName: "n", GPUName: "n-0"}
		device.Spec.Capacity = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30")}
		if test.share != "" {
			device.Spec.Capacity[egpu.ResourceMemory] = resource.MustParse(test.share)
		}
		engine := Engine{Image: "image"}
		if test.engine != "" {
			engine.Memory = resource.MustParse(test.engine)
		}
		pod, err := (&Servers{Engines: map[string]Engine{"elastic": engine}}).pod(t.Context(), c, device)
		if err != nil {
			t.Fatal(err)
		}
		has := pod.Spec.Containers[0].Resources
		if limit := has.Limits[corev1.ResourceMemory]; limit.Cmp(resource.MustParse(test.want)) != 0 {
			t.Errorf("%s: %s, want %s", name, limit.String(), test.want)
		}
		// A request that is not written is made the limit, and the node would refuse the server.
		if request, written := has.Requests[corev1.ResourceMemory]; !written || !request.IsZero() {
			t.Errorf("%s: requests %s", name, request.String())
		}
	}
}

// The server of a remote ElasticGPU is there while its claim is, is made again when the node refused it, and goes with it.
func TestServerOfARemoteCard(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Provisioner: egpu.ProvisionerShare, Parameters: map[string]string{"sharing": "remote"}}
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}
	device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "egpu-1", UID: "d", Annotations: map[string]string{egpu.ProvisionerAnnotation: egpu.ProvisionerShare}}}
	device.Spec.RemoteGPU = &egpu.RemoteGPUSource{NodeName: "n", GPUName: "n-0"}
	device.Spec.ClaimRef, device.Spec.ElasticGPUClassName, device.Spec.ReclaimPolicy = refTo(claim), "far", egpu.ReclaimDelete
	device.Status.Phase = egpu.GPUBound
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "user", Annotations: map[string]string{egpu.ClaimPrefix + "main": "c"}}}
	user.Spec.NodeName, user.Spec.Containers = "elsewhere", []corev1.Container{{Name: "main"}}
	ended := user.DeepCopy()
	ended.Name, ended.Status.Phase = "ended", corev1.PodSucceeded
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(device, &corev1.Pod{}).WithObjects(class, claim, device, user, ended).
		WithIndex(&corev1.Pod{}, usesClaim, claimsUsed).Build()
	recorder := events.NewFakeRecorder(100)
	d := &deviceController{Client: c, direct: c, servers: Servers{Namespace: "system"}, events: recorder}
	reported := func(want ...string) {
		t.Helper()
		var got []string
		for len(recorder.Events) > 0 {
			e := strings.Fields(<-recorder.Events)
			got = append(got, e[0]+" "+e[1]+" "+e[2])
		}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	}
	key := client.ObjectKey{Namespace: "system", Name: "remote-egpu-1"}
	look := func(want string) *corev1.Pod {
		t.Helper()
		if _, err := d.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(device)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(device), device); client.IgnoreNotFound(err) != nil || err == nil && device.Status.Reason != want {
			t.Fatalf("status %+v %v, want %q", device.Status, err, want)
		}
		pod := &corev1.Pod{}
		if err := c.Get(ctx, key, pod); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	if look("NoEngine") != nil {
		t.Fatal("a server of no image")
	}
	d.servers.Engines = map[string]Engine{"elastic": {Image: "image", Command: []string{"serve"}}}
	// How much memory a share has that says none, its card says.
	if _, err := d.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(device)}); err == nil || !strings.Contains(err.Error(), "no GPU n-0") {
		t.Fatalf("without its card: %v", err)
	}
	if err := c.Create(ctx, &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "n-0"}, Spec: egpu.GPUSpec{Memory: 80 << 10}}); err != nil {
		t.Fatal(err)
	}
	pod := look("ServerNotReady")
	if pod == nil || pod.Spec.NodeName != "n" || pod.Annotations[egpu.ServesAnnotation] != "egpu-1" || pod.Spec.Containers[0].Command[1] != serverAddress {
		t.Fatalf("server %+v", pod)
	}
	if s := pod.Spec.Containers[0].SecurityContext; !*s.RunAsNonRoot || *s.AllowPrivilegeEscalation || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the server has rights")
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
	look("Served")
	look("Served")
	reported()
	// Its process is another one, which nobody saw come; it is reported once, for the claim and for who uses it.
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1e9, 0)}}}}
	if err := c.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
	look("Served")
	look("Served")
	reported("Warning RemoteCardLost its", "Warning RemoteCardLost ElasticGPUClaim")
	pod.Status.Conditions, pod.Status.Phase, pod.Status.Message = nil, corev1.PodFailed, "the node has no slots"
	if err := c.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
	look("ServerLost")
	again := look("ServerLost")
	if again == nil || again.Status.Phase == corev1.PodFailed {
		t.Fatalf("after the node refused it: %+v", again)
	}
	reported("Warning RemoteCardLost its", "Warning RemoteCardLost ElasticGPUClaim")
	again.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(ctx, again); err != nil {
		t.Fatal(err)
	}
	look("Served")
	reported("Normal RemoteCardServed pod", "Normal RemoteCardServed ElasticGPUClaim")
	if err := c.Delete(ctx, claim); err != nil {
		t.Fatal(err)
	}
	if left := look("Served"); left != nil {
		t.Error("it outlives its claim")
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(device), device); !apierrors.IsNotFound(err) {
		t.Errorf("the ElasticGPU outlives its claim: %v", err)
	}
}
