package cloudoffers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// Tables reads price tables: those in ConfigMaps of a namespace, and those in CloudOffers themselves. A table has ten thousand rows and is
// asked for with each workload, so it is read again only when it, or what is meant of it, has changed.
type Tables struct {
	client    client.Reader
	namespace string
	known     *knownTables
}

// knownTables are what CloudOffers mean of their tables, by name.
type knownTables struct {
	sync.Mutex
	sold map[string]soldAs
}

// soldAs is what was read, and from which versions of the objects.
type soldAs struct {
	offer      types.UID
	generation int64
	table      types.UID
	version    string // of the table
	*sold
}

// mostTables bounds what is remembered of CloudOffers that are gone.
const mostTables = 512

// NewTables reads tables in ConfigMaps of a namespace.
func NewTables(c client.Reader, namespace string) Tables {
	return Tables{client: c, namespace: namespace, known: &knownTables{sold: map[string]soldAs{}}}
}

// Offers are what a CloudOffer sells, at least one. What is wrong with it is in its status, too. They are others' as well: nobody changes them.
func (t Tables) Offers(ctx context.Context, offer *v1alpha1.CloudOffer) ([]cloud.Offer, error) {
	s, err := t.sold(ctx, offer)
	if err != nil {
		return nil, err
	}
	return s.offers, s.err
}

// IsProblem says that an error is of the CloudOffer and its table, and not of reading them.
func IsProblem(err error) bool { return errors.As(err, new(problem)) }

// sold is what a CloudOffer means of its table; err is a problem where there is no table.
func (t Tables) sold(ctx context.Context, offer *v1alpha1.CloudOffer) (*sold, error) {
	text, is := offer.Spec.Prices.Inline, soldAs{offer: offer.UID, generation: offer.Generation}
	if from := offer.Spec.Prices.ConfigMap; from != nil {
		table := &corev1.ConfigMap{}
		err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: from.Name}, table)
		if apierrors.IsNotFound(err) {
			return nil, problem{v1alpha1.ReasonNoTable, fmt.Sprintf("spec.prices.configMap: there is no ConfigMap %s in namespace %s", from.Name, t.namespace)}
		}
		if err != nil {
			return nil, err
		}
		var has bool
		if text, has = table.Data[from.Key]; !has {
			return nil, problem{v1alpha1.ReasonNoTable, fmt.Sprintf("spec.prices.configMap: ConfigMap %s has no entry %s", from.Name, from.Key)}
		}
		is.table, is.version = table.UID, table.ResourceVersion
	}
	t.known.Lock()
	was, known := t.known.sold[offer.Name]
	t.known.Unlock()
	is.sold = was.sold
	if known && was == is {
		return was.sold, nil
	}
	is.sold = matching(offer, text) // without the lock: two may read the same table
	t.known.Lock()
	defer t.known.Unlock()
	if len(t.known.sold) >= mostTables {
		clear(t.known.sold)
	}
	t.known.sold[offer.Name] = is
	return is.sold, nil
}
