package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// Servers are pods on the nodes of cards that are used from other nodes, one for each ElasticGPU: they carry out the calls of
// its programs, with its share, as any container has one. No code of a tenant's runs in them but what kernels do.
type Servers struct {
	Namespace string
	// Engines by the name that classes choose them by.
	Engines map[string]Engine
}

// Engine is the server's part of one.
type Engine struct {
	Image   string
	Command []string
	// Memory of the node that it may use beside what its share has on the card; zero means serverMemory.
	Memory resource.Quantity
}

// serverMemory is enough for what 64 processes of ours retain (code, buffers of copies and frames: 104 MiB each), and the
// driver in them.
const serverMemory = 16 << 30

// serverAddress is in the folder that the library has in each container.
const serverAddress = "unix:/run/elastic-gpu/remote.sock"

// serverUser is nobody's: what a hostile kernel makes of a server is a process without rights.
const serverUser = 65532

// serverAgain is when a server that the node refused is made again.
const serverAgain = 10 * time.Second

// serve has the server of an ElasticGPU run while its claim is there, and its status say how it is.
func (d *deviceController) serve(ctx context.Context, device *egpu.ElasticGPU, gone bool) (again time.Duration, err error) {
	pod := &corev1.Pod{}
	err = d.Get(ctx, client.ObjectKey{Namespace: d.servers.Namespace, Name: request.ServerName(device.Name)}, pod)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return 0, err
	}
	switch {
	case missing && gone:
		return 0, nil
	case !missing && pod.DeletionTimestamp != nil && !gone:
		return 0, d.tell(ctx, device, pod)
	case !missing && pod.DeletionTimestamp != nil:
		return 0, nil
	case gone:
		return 0, d.deleteServer(ctx, pod)
	case missing:
		pod, err = d.servers.pod(ctx, d, device)
		if unknown := (unknownEngineError{}); errors.As(err, &unknown) {
			return 0, setPhase(ctx, d, device, device.Status.Phase, reasonNoEngine, err.Error())
		}
		if err != nil {
			return 0, fmt.Errorf("making the server of ElasticGPU %s: %w", device.Name, err)
		}
		if err := d.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
			return 0, fmt.Errorf("making the server of ElasticGPU %s: %w", device.Name, err)
		}
	}
	if err := errors.Join(d.tell(ctx, device, pod), d.follow(ctx, device, pod)); err != nil {
		return 0, err
	}
	if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
		return 0, nil
	}
	if wait := time.Until(pod.CreationTimestamp.Add(serverAgain)); wait > 0 {
		return wait, nil
	}
	return 0, d.deleteServer(ctx, pod) // the node refused it: another one is made
}

func (d *deviceController) deleteServer(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(d.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}

// unknownEngineError is the name of an engine that the configuration does not have.
type unknownEngineError struct{ name string }

func (e unknownEngineError) Error() string {
	return fmt.Sprintf("the GPU scheduler's configuration has no image of the engine %q: write it into remoteEngines", e.name)
}

// pod that serves an ElasticGPU.
func (s *Servers) pod(ctx context.Context, c client.Reader, device *egpu.ElasticGPU) (*corev1.Pod, error) {
	class := &egpu.ElasticGPUClass{}
	if err := c.Get(ctx, client.ObjectKey{Name: device.Spec.ElasticGPUClassName}, class); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	name := request.Engine(class.Parameters)
	engine, known := s.Engines[name]
	if !known {
		return nil, unknownEngineError{name}
	}
	memory, err := engine.memory(ctx, c, device)
	if err != nil {
		return nil, err
	}
	no, yes, user, grace := false, true, int64(serverUser), int64(5)
	one := resource.MustParse("1")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: request.ServerName(device.Name),
			Labels:      map[string]string{"app": "elastic-gpu-remote"},
			Annotations: map[string]string{egpu.ServesAnnotation: device.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: egpu.GroupVersion.String(), Kind: "ElasticGPU", Name: device.Name, UID: device.UID, Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      device.Spec.RemoteGPU.NodeName, // its card is there
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &grace,
			SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "server", Image: engine.Image, Command: append(slices.Clone(engine.Command), serverAddress),
				// No memory is requested, as before it is used; left out, the request would be the limit.
				Resources: corev1.ResourceRequirements{
					Limits:   corev1.ResourceList{egpu.ResourceClaim: one, corev1.ResourceMemory: memory},
					Requests: corev1.ResourceList{egpu.ResourceClaim: one, corev1.ResourceMemory: resource.Quantity{}},
				},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}, nil
}

// memory of the node that a server may use, so that no client makes the node run out of it. What the share has on the card may
// be moved there: a share that says no memory has the card's.
func (e Engine) memory(ctx context.Context, c client.Reader, device *egpu.ElasticGPU) (resource.Quantity, error) {
	share, said := device.Spec.Capacity[egpu.ResourceMemory]
	mib := share.Value()
	if !said {
		card := &egpu.GPU{}
		err := c.Get(ctx, client.ObjectKey{Name: device.Spec.RemoteGPU.GPUName}, card)
		if apierrors.IsNotFound(err) { // it comes back with its node's agent, and no event of ours says so
			return resource.Quantity{}, fmt.Errorf("there is no GPU %s, which says how much memory its card has", device.Spec.RemoteGPU.GPUName)
		}
		if err != nil {
			return resource.Quantity{}, err
		}
		mib = card.Spec.Memory
	}
	own := int64(serverMemory)
	if !e.Memory.IsZero() {
		own = e.Memory.Value()
	}
	return *resource.NewQuantity(own+mib<<20, resource.BinarySI), nil
}
