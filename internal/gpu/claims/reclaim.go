package claims

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// deviceController sets the phase of ElasticGPUs, and reclaims those whose claim has gone.
type deviceController struct {
	client.Client
	direct client.Reader
	// servers are made for what is used from other nodes.
	servers Servers
	events  events.EventRecorder
}

// Reconcile looks at one ElasticGPU.
func (d *deviceController) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	device := &egpu.ElasticGPU{}
	if err := d.Get(ctx, r.NamespacedName, device); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if device.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	ref := device.Spec.ClaimRef
	if ref == nil {
		return reconcile.Result{}, ignoreOld(setPhase(ctx, d, device, egpu.GPUAvailable, "", ""))
	}
	// From the API server: the cache may not know a new claim yet, and what follows cannot be undone.
	claim := &egpu.ElasticGPUClaim{}
	err := d.direct.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, claim)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	gone := apierrors.IsNotFound(err) || ref.UID != "" && claim.UID != ref.UID
	if request.IsServed(device) && device.Status.Phase != "" {
		again, err := d.serve(ctx, device, gone)
		if err != nil || !gone {
			return reconcile.Result{RequeueAfter: again}, ignoreOld(err)
		}
	}
	switch {
	case gone && ref.UID == "":
		// Set aside by a person for a claim that is yet to come.
		err = setPhase(ctx, d, device, egpu.GPUAvailable, "", "")
	case !gone:
		if device.Status.Phase == "" {
			err = setPhase(ctx, d, device, egpu.GPUPending, "", "")
		} else {
			err = nil // binding it is the claim's controller's work
		}
	case device.Spec.ReclaimPolicy == egpu.ReclaimDelete && InTree(device.Annotations[egpu.ProvisionerAnnotation]):
		err = d.Delete(ctx, device, client.Preconditions{UID: &device.UID, ResourceVersion: &device.ResourceVersion})
	case device.Spec.ReclaimPolicy == egpu.ReclaimDelete:
		err = setPhase(ctx, d, device, egpu.GPUReleased, "ClaimGone", "its provisioner deletes it")
	default:
		err = setPhase(ctx, d, device, egpu.GPUReleased, "ClaimGone", "its claim has gone; delete it, or remove its claimRef to offer it again")
	}
	return reconcile.Result{}, ignoreOld(err)
}
