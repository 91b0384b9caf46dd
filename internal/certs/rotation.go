package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// renewBefore is how long before its end a certificate is renewed.
const renewBefore = 60 * 24 * time.Hour

// Label marks the webhook configurations and CRDs whose caBundle is ours to
// write; its value is the rotator's name.
const Label = "elasticai.io/webhooks-of"

// Rotator makes and renews the certificate of one program.
type Rotator struct {
	Client client.Client // uncached: these objects are few and rarely read
	Log    logr.Logger
	// Name is the value of Label.
	Name string
	// Secret and Namespace are where replicas share the certificate.
	Secret, Namespace string
	// Dir is where the webhook server reads tls.crt and tls.key.
	Dir string
	// Names the certificate answers for.
	Names []string
	// Given says that someone else provides the files in Dir and publishes the CA to the
	// API server.
	Given bool
	// APIServices: the program serves an aggregated API as well.
	APIServices bool
}

const checkEvery = time.Hour

// NeedLeaderElection is false: every replica serves webhooks.
func (r *Rotator) NeedLeaderElection() bool { return false }

// Start renews the certificate until ctx ends. Ensure has run before.
func (r *Rotator) Start(ctx context.Context) error {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := r.Ensure(ctx); err != nil {
				r.Log.Error(err, "checking the webhooks' certificate failed, trying again", "in", checkEvery.String())
			}
		}
	}
}

// Ensure brings the Secret, the files and the API server's trust up to date.
func (r *Rotator) Ensure(ctx context.Context) error {
	if r.Given {
		_, err := tls.LoadX509KeyPair(filepath.Join(r.Dir, "tls.crt"), filepath.Join(r.Dir, "tls.key"))
		if err != nil {
			return fmt.Errorf("the webhooks' certificate must be put into %s by whoever manages it: %w", r.Dir, err)
		}
		return nil
	}
	bundle, err := r.fromSecret(ctx)
	if err != nil {
		return fmt.Errorf("webhooks' certificate in secret %s/%s: %w", r.Namespace, r.Secret, err)
	}
	// Publish the CA first: a server must not answer with a certificate its clients cannot verify.
	if err := r.publish(ctx, bundle.CA); err != nil {
		return fmt.Errorf("publishing the webhooks' CA: %w", err)
	}
	return r.toFiles(bundle)
}

func (r *Rotator) fromSecret(ctx context.Context) (Bundle, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Secret}}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return Bundle{}, err
	}
	bundle := Bundle{Certificate: secret.Data["tls.crt"], Key: secret.Data["tls.key"], CA: secret.Data["ca.crt"]}
	now := time.Now()
	why := bundle.Check(r.Names, now)
	if !missing && why == nil {
		return bundle, nil
	}
	if !missing {
		r.Log.Info("making a new certificate for the webhooks", "why", why.Error())
	}
	bundle, err = bundle.renew(r.Names, now)
	if err != nil {
		return Bundle{}, err
	}
	secret.Data = map[string][]byte{"tls.crt": bundle.Certificate, "tls.key": bundle.Key, "ca.crt": bundle.CA}
	if missing {
		secret.Type = corev1.SecretTypeTLS
		err = r.Client.Create(ctx, secret)
	} else {
		err = r.Client.Update(ctx, secret)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return r.fromSecret(ctx) // another replica was first
	}
	return bundle, err
}

func (r *Rotator) toFiles(bundle Bundle) error {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	for name, data := range map[string][]byte{"tls.crt": bundle.Certificate, "tls.key": bundle.Key, "ca.crt": bundle.CA} {
		path := filepath.Join(r.Dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// publish writes the CA wherever the API server needs it to call us.
func (r *Rotator) publish(ctx context.Context, ca []byte) error {
	ours := client.MatchingLabels{Label: r.Name}
	mutating := &admissionregv1.MutatingWebhookConfigurationList{}
	if err := r.Client.List(ctx, mutating, ours); err != nil {
		return err
	}
	for i := range mutating.Items {
		before := mutating.Items[i].DeepCopy()
		for j := range mutating.Items[i].Webhooks {
			mutating.Items[i].Webhooks[j].ClientConfig.CABundle = ca
		}
		if err := r.patch(ctx, &mutating.Items[i], before); err != nil {
			return err
		}
	}
	validating := &admissionregv1.ValidatingWebhookConfigurationList{}
	if err := r.Client.List(ctx, validating, ours); err != nil {
		return err
	}
	for i := range validating.Items {
		before := validating.Items[i].DeepCopy()
		for j := range validating.Items[i].Webhooks {
			validating.Items[i].Webhooks[j].ClientConfig.CABundle = ca
		}
		if err := r.patch(ctx, &validating.Items[i], before); err != nil {
			return err
		}
	}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := r.Client.List(ctx, crds, ours); err != nil {
		return err
	}
	for i := range crds.Items {
		conversion := crds.Items[i].Spec.Conversion
		if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
			continue
		}
		before := crds.Items[i].DeepCopy()
		conversion.Webhook.ClientConfig.CABundle = ca
		if err := r.patch(ctx, &crds.Items[i], before); err != nil {
			return err
		}
	}
	if !r.APIServices {
		return nil
	}
	return r.publishToAPIServices(ctx, ca)
}

func (r *Rotator) publishToAPIServices(ctx context.Context, ca []byte) error {
	services := &unstructured.UnstructuredList{}
	services.SetAPIVersion("apiregistration.k8s.io/v1")
	services.SetKind("APIServiceList")
	if err := r.Client.List(ctx, services, client.MatchingLabels{Label: r.Name}); err != nil {
		return client.IgnoreNotFound(err) // an API server without aggregation
	}
	for i := range services.Items {
		before := services.Items[i].DeepCopy()
		// The library has no type for it; in JSON, bytes are base64.
		if err := unstructured.SetNestedField(services.Items[i].Object, base64.StdEncoding.EncodeToString(ca), "spec", "caBundle"); err != nil {
			return err
		}
		// Kueue's own APIService skips verification of the certificate.
		unstructured.RemoveNestedField(services.Items[i].Object, "spec", "insecureSkipTLSVerify")
		if err := r.patch(ctx, &services.Items[i], before); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rotator) patch(ctx context.Context, obj, before client.Object) error {
	patch := client.MergeFrom(before)
	data, err := patch.Data(obj)
	if err != nil || string(data) == "{}" {
		return err
	}
	return r.Client.Patch(ctx, obj, patch)
}
