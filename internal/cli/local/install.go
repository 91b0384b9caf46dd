package local

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/certs"
)

const fieldManager = "elastic-up"

// install puts the CRDs and what the programs need into the cluster, with
// webhooks that go to processes on this machine.
func install(ctx context.Context, c client.Client, programs []program) error {
	objects, err := deploy.CRDs()
	if err != nil {
		return err
	}
	for _, p := range programs {
		for _, folder := range p.folders {
			more, err := deploy.Program(folder)
			if err != nil {
				return err
			}
			objects = append(objects, more...)
		}
	}
	for _, p := range programs {
		if p.webhook != "" {
			if err := deploy.PointWebhooksTo(p.name, "https://"+p.webhook, objects); err != nil {
				return err
			}
		}
	}
	for _, p := range programs {
		if p.extender == "" || p.mutual.CA == nil {
			continue
		}
		secret, err := secretOf(p.mutual)
		if err != nil {
			return err
		}
		objects = append(objects, secret)
	}
	if err := apply(ctx, c, objects); err != nil {
		return err
	}
	return waitEstablished(ctx, c, objects)
}

// secretOf the extender's certificates, which kube-scheduler has already.
func secretOf(m certs.Mutual) (*unstructured.Unstructured, error) {
	cfg := v1alpha1.NewGPUSchedulerConfiguration()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.LeaderElection.Namespace, Name: cfg.Extender.SecretName},
		Data:       m.Data(),
	})
	return &unstructured.Unstructured{Object: object}, err
}

// applyAtOnce is how many objects are on their way at a time.
const applyAtOnce = 8

// apply brings objects into the cluster, whatever was there before: first those that others are in or are made of.
func apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var first, rest []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			first = append(first, object)
		default:
			rest = append(rest, object)
		}
	}
	for _, part := range [][]*unstructured.Unstructured{first, rest} {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(applyAtOnce)
		for _, object := range part {
			group.Go(func() error {
				err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager), client.ForceOwnership)
				if err != nil {
					return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// waitEstablished waits until the API server serves the CRDs among objects.
func waitEstablished(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			current := &unstructured.Unstructured{}
			current.SetGroupVersionKind(object.GroupVersionKind())
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
				return false, unlessLate(err)
			}
			conditions, _, _ := unstructured.NestedSlice(current.Object, "status", "conditions")
			for _, condition := range conditions {
				if m, ok := condition.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
					return true, nil
				}
			}
			return false, nil // the server has yet to look at it
		})
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", object.GetName(), err)
		}
	}
	if resettable, ok := c.RESTMapper().(meta.ResettableRESTMapper); ok {
		resettable.Reset()
	}
	return nil
}

// tokenLifetime outlives any laptop session; "up" makes a new token each time.
const tokenLifetime = 365 * 24 * time.Hour

// writeKubeconfig gives a program the rights of its service account, and no
// others. A token that is bound to a node says so, as that of a pod there does.
func writeKubeconfig(ctx context.Context, c client.Client, admin *rest.Config, account client.ObjectKey, node, path string) error {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))},
	}
	if node != "" {
		on := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKey{Name: node}, on); err != nil {
			return err
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: on.UID}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := c.SubResource("token").Create(ctx, sa, request); err != nil {
		return fmt.Errorf("token for service account %s: %w", account, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos[account.Name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: account.Name}
	config.CurrentContext = "sandbox"
	return clientcmd.WriteToFile(*config, path)
}
