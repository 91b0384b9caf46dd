package provisioning

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

const (
	inactiveMessage  = "the check is not active"
	notNeededMessage = "the provisioning request is not needed"
)

// checkStateFor is what a request's conditions mean for its check.
func checkStateFor(wl *kueue.Workload, is kueue.AdmissionCheckState, config *kueue.ProvisioningRequestConfigSpec, request *ProvisioningRequest, groups []group) kueue.AdmissionCheckState {
	said := func(condition string) *metav1.Condition {
		if c := apimeta.FindStatusCondition(request.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
			return c
		}
		return nil
	}
	attempt := attemptOf(request.Name, wl.Name, is.Name)
	failed, revoked, expired := said(Failed), said(CapacityRevoked), said(BookingExpired)
	provisioned, accepted := said(Provisioned), said(Accepted)
	switch {
	case failed != nil:
		return retryOrReject(is, attempt, config.RetryStrategy, "Retrying after failure: ", failed.Message)
	case revoked != nil:
		// The nodes no longer exist: pods that are started again would wait forever.
		if workload.IsActive(wl) {
			is.State, is.Message = kueue.CheckStateRejected, revoked.Message
		}
	case expired != nil:
		if !workload.IsAdmitted(wl) { // running pods stay on their nodes
			return retryOrReject(is, attempt, config.RetryStrategy, "Retrying after booking expired: ", expired.Message)
		}
	case provisioned != nil:
		if is.State != kueue.CheckStateReady {
			is.State, is.Message, is.PodSetUpdates = kueue.CheckStateReady, provisioned.Message, updates(request, config, groups)
		}
	case accepted != nil:
		if eta := apimeta.FindStatusCondition(request.Status.Conditions, Provisioned); eta != nil {
			is.State, is.Message = kueue.CheckStatePending, eta.Message
		}
	default: // no answer yet; the state of an earlier attempt no longer counts
		is.State, is.Message = kueue.CheckStatePending, ""
	}
	return is
}

// retryOrReject makes another attempt after a pause, in which others may use the quota, or gives
// up.
func retryOrReject(is kueue.AdmissionCheckState, attempt int32, strategy *kueue.ProvisioningRequestRetryStrategy, prefix, why string) kueue.AdmissionCheckState {
	strategy = ptr.To(ptr.Deref(strategy, kueue.ProvisioningRequestRetryStrategy{}))
	if attempt > ptr.Deref(strategy.BackoffLimitCount, 3) {
		is.State, is.Message = kueue.CheckStateRejected, why
		return is
	}
	is.Message = prefix + why
	if retried := ptr.Deref(is.RetryCount, 0); attempt > retried { // otherwise the next attempt counts
		is.State = kueue.CheckStateRetry
		is.RequeueAfterSeconds = ptr.To(pause(retried, ptr.Deref(strategy.BackoffBaseSeconds, 60), ptr.Deref(strategy.BackoffMaxSeconds, 1800)))
	}
	return is
}

// pause before another attempt, in seconds: it doubles with each.
func pause(retried, base, longest int32) int32 {
	return int32(min(int64(base)<<min(retried, 30), int64(longest)))
}

// isOver says that a request will bring no more nodes.
func isOver(wl *kueue.Workload, request *ProvisioningRequest) bool {
	return apimeta.IsStatusConditionTrue(request.Status.Conditions, Failed) ||
		apimeta.IsStatusConditionTrue(request.Status.Conditions, BookingExpired) && !workload.IsAdmitted(wl)
}
