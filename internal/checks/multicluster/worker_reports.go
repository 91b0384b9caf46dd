package multicluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
)

const (
	// reportEvery is how often clusters are asked what they have learned of places.
	reportEvery = 30 * time.Second
	// mostOffers is how many of a cluster's CloudOffers are read.
	mostOffers = 64
)

// workerReports brings what clusters have learned of the places where they buy into the statuses of the CloudOffers that have their
// prices here. So a cluster that is sold out is nominated after those that are not, and a new leader knows it, too. A cluster that has no
// CloudOffers, or does not let us list them, has nothing to report.
type workerReports struct {
	clusters *clusters
	tables   cloudoffers.Tables
	now      func() time.Time
}

func (r *workerReports) run(ctx context.Context) error {
	for {
		if err := r.ask(ctx); err != nil {
			r.clusters.log.Error(err, "taking in what clusters report of places failed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reportEvery):
		}
	}
}

// ask each cluster with prices here once.
func (r *workerReports) ask(ctx context.Context) error {
	ours := &cloudv1.CloudOfferList{}
	if err := r.clusters.client.List(ctx, ours); err != nil {
		return err
	}
	theirs, sessions := map[string]*cloudv1.CloudOfferList{}, r.clusters.sessions()
	for i := range ours.Items {
		offer := &ours.Items[i]
		name := offer.Spec.Cluster()
		session := sessions[name]
		if session == nil {
			continue // what it reported last counts while it lasts
		}
		list, asked := theirs[name]
		if !asked {
			list = r.list(ctx, session)
			theirs[name] = list
		}
		if list == nil {
			continue
		}
		if err := r.write(ctx, offer, list.Items); err != nil {
			return err
		}
	}
	return nil
}

// list what a cluster has; nil: it does not answer.
func (r *workerReports) list(ctx context.Context, s *session) *cloudv1.CloudOfferList {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	list := &cloudv1.CloudOfferList{}
	err := s.direct.List(ctx, list, client.Limit(mostOffers))
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return &cloudv1.CloudOfferList{} // it does not say
	}
	if err != nil {
		r.clusters.log.V(1).Info("a cluster does not say what it has learned of places", "cluster", s.name, "error", err.Error())
		return nil
	}
	return list
}

// write what a cluster reports into the status of one of its CloudOffers here. Who was faster is seen the next time.
func (r *workerReports) write(ctx context.Context, offer *cloudv1.CloudOffer, theirs []cloudv1.CloudOffer) error {
	sold, err := r.tables.Offers(ctx, offer)
	if err != nil {
		if cloudoffers.IsProblem(err) {
			return nil // its status says so
		}
		return err
	}
	places := cloudoffers.Reported(theirs, sold, r.now())
	if cloudoffers.SamePlaces(offer.Status.Places, places) {
		return nil
	}
	was := offer.DeepCopy()
	offer.Status.Places = cloudoffers.WithPricesOf(places, was.Status.Places)
	err = r.clusters.client.Status().Patch(ctx, offer, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
