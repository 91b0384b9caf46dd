package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Prometheus has what elastic-queue's metrics were. It is asked with no rights of a person's, so only about queues that they see.
type Prometheus struct {
	// URL of its API, without "/api/v1".
	URL    *url.URL
	Client *http.Client
}

// NewPrometheus at a URL; nil where that is empty.
func NewPrometheus(text string) (*Prometheus, error) {
	if text == "" {
		return nil, nil
	}
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of a Prometheus: write http://HOST:PORT", text)
	}
	return &Prometheus{URL: at, Client: &http.Client{Timeout: askWithin}}, nil
}

const (
	mostHours = 14 * 24
	points    = 360 // of each line
	// mostAnswer is how much of an answer is read: 500 queues with each point.
	mostAnswer = 32 << 20
)

// asked are the lines of a queue; %[1]s is the time between two points. What counts in cards: as cardsIn.
var asked = map[string]string{
	"used":    cardsOf("kueue_cluster_queue_resource_usage"),
	"nominal": cardsOf("kueue_cluster_queue_nominal_quota"),
	"waiting": "sum by (cluster_queue) (kueue_pending_workloads)",
	"running": "sum by (cluster_queue) (kueue_admitted_active_workloads)",
	// The counter of a queue and reason begins with its first eviction, which increase does not see: a line that is new counts
	// as it is, where Prometheus was there before it.
	"evicted": "sum by (cluster_queue) ((" + evictions + " unless " + evictions + " offset %[1]s) and on (cluster_queue) (kueue_pending_workloads offset %[1]s) or increase(" + evictions + "[%[1]s]))",
}

const evictions = "kueue_evicted_workloads_total"

func cardsOf(metric string) string {
	return "sum by (cluster_queue) (" + metric + `{resource="nvidia.com/gpu"} or ` + metric + `{resource=~".*/q?gpu-core"} / 100)`
}

// past of these queues over so many hours.
func (p *Prometheus) past(ctx context.Context, names []string, hours int, now time.Time) (*past, error) {
	step := time.Duration(hours) * time.Hour / points
	start := now.Add(-time.Duration(hours) * time.Hour).Truncate(step)
	out := &past{Queues: map[string]*series{}}
	for i := range points {
		out.Times = append(out.Times, start.Add(time.Duration(i+1)*step).Unix())
	}
	for _, name := range names {
		out.Queues[name] = &series{Used: make([]float32, points), Nominal: make([]float32, points), Waiting: make([]float32, points), Running: make([]float32, points), Evicted: make([]float32, points)}
	}
	for line, query := range asked {
		if strings.Contains(query, "%[1]s") {
			query = fmt.Sprintf(query, step)
		}
		if err := p.ask(ctx, query, out, step, line); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ask for one line of all queues, and store those of the queues that are asked about.
func (p *Prometheus) ask(ctx context.Context, query string, out *past, step time.Duration, line string) error {
	form := url.Values{
		"query": {query}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
		"start": {strconv.FormatInt(out.Times[0], 10)}, "end": {strconv.FormatInt(out.Times[points-1], 10)},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL.JoinPath("api/v1/query_range").String(), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := p.Client.Do(r)
	if err != nil {
		return fmt.Errorf("asking Prometheus: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	var said struct {
		Error string
		Data  struct {
			Result []struct {
				Metric struct {
					Queue string `json:"cluster_queue"`
				}
				Values [][2]any // seconds, and the value as text
			}
		}
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&said); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("prometheus answers %s %s", answer.Status, said.Error)
	}
	for _, result := range said.Data.Result {
		queue := out.Queues[result.Metric.Queue]
		if queue == nil {
			continue
		}
		values := map[string][]float32{"used": queue.Used, "nominal": queue.Nominal, "waiting": queue.Waiting, "running": queue.Running, "evicted": queue.Evicted}[line]
		for _, value := range result.Values {
			at, isNumber := value[0].(float64)
			text, isText := value[1].(string)
			v, err := strconv.ParseFloat(text, 32)
			if i := int((at - float64(out.Times[0])) / step.Seconds()); isNumber && isText && err == nil && i >= 0 && i < points && !math.IsNaN(v) {
				values[i] = float32(v)
			}
		}
	}
	return nil
}
