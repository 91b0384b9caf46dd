package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/job"
)

// place is a workload in the order of its queue.
type place struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Local     string     `json:"local"`
	Position  int32      `json:"position"`
	Priority  int32      `json:"priority"`
	Created   time.Time  `json:"created"`
	StartsAt  *time.Time `json:"startsAt,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
}

const (
	mostPlaces = 200
	// forecasts of so many workloads are asked for, so many at once, for so long.
	mostForecasts  = 20
	forecasts      = 4
	forecastWithin = 3 * time.Second
)

// line answers with a part of a queue's order, as the queue itself gives it.
func (s *Server) line(w http.ResponseWriter, r *http.Request, p person) {
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	offset := number(r.URL.Query().Get("offset"), 0)
	limit := min(number(r.URL.Query().Get("limit"), 50), mostPlaces)
	data, err := p.client.Core.CoreV1().RESTClient().Get().AbsPath("/apis", visibility.SchemeGroupVersion.Group, visibility.SchemeGroupVersion.Version,
		"clusterqueues", r.PathValue("queue"), "pendingworkloads").Param("limit", strconv.Itoa(limit)).Param("offset", strconv.Itoa(offset)).DoRaw(ctx)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	summary := &visibility.PendingWorkloadsSummary{}
	if err := json.Unmarshal(data, summary); err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	places := make([]place, len(summary.Items))
	for i := range summary.Items {
		item := &summary.Items[i]
		places[i] = place{
			Namespace: item.Namespace, Name: item.Name, Local: string(item.LocalQueueName), Position: item.PositionInClusterQueue + 1,
			Priority: item.Priority, Created: item.CreationTimestamp.Time,
		}
	}
	forecast(ctx, p.client, places[:min(len(places), mostForecasts)])
	reply(w, http.StatusOK, places)
}

func number(text string, otherwise int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}

// forecast adds when workloads should start; of those that may not be asked about, nothing.
func forecast(ctx context.Context, c *cluster.Client, places []place) {
	ctx, cancel := context.WithTimeout(ctx, forecastWithin)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(forecasts)
	for i := range places {
		at := &places[i]
		group.Go(func() error {
			standing, err := job.Ask(ctx, c, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}})
			if err != nil {
				return nil // a place without a forecast is still one
			}
			at.Reason, at.Message = standing.Reason, standing.Message
			if standing.StartsAt != nil {
				at.StartsAt = &standing.StartsAt.Time
			}
			return nil
		})
	}
	_ = group.Wait()
}
