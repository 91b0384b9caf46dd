package claims

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

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
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(device, &corev1.Pod{}).WithObjects(class, claim, device).Build()
	d := &deviceController{Client: c, direct: c, servers: Servers{Namespace: "system"}}
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
	look("")
	pod.Status.Conditions, pod.Status.Phase, pod.Status.Message = nil, corev1.PodFailed, "the node has no slots"
	if err := c.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
	look("ServerNotReady")
	if again := look("ServerNotReady"); again == nil || again.Status.Phase == corev1.PodFailed {
		t.Errorf("after the node refused it: %+v", again)
	}
	if err := c.Delete(ctx, claim); err != nil {
		t.Fatal(err)
	}
	if left := look("ServerNotReady"); left != nil {
		t.Error("it outlives its claim")
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(device), device); !apierrors.IsNotFound(err) {
		t.Errorf("the ElasticGPU outlives its claim: %v", err)
	}
}
