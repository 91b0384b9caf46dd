package webhooks

import (
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
)

// Path is where the API server sends jobs of every kind, and pods.
const Path = "/mutate-job"

// Options of the webhooks.
type Options struct {
	Filter *managed.Filter
	Kinds  *kinds.InUse
	// MultiKueue hands jobs over whose queue sends them to other clusters.
	MultiKueue bool
	// ResizableGroups allows the groups of an object to change in size.
	ResizableGroups bool
	// NoTopology ignores topology annotations; NoSliceLayers refuses jobs that ask for slices of slices.
	NoTopology, NoSliceLayers bool
	// NoGates ignores who must agree before a job's workload is considered.
	NoGates bool
	// RayAndSparkMayLeave lets running jobs of these kinds give up their queue name, as Kueue did before
	// it validated their updates.
	RayAndSparkMayLeave bool
	// DefaultPriorityClass gives jobs that name no WorkloadPriorityClass the one called "default".
	DefaultPriorityClass bool
}

// Register serves both webhooks at our path for all kinds, and at Kueue's paths, which name the
// kind: where Kueue's webhooks are still configured, jobs are suspended all the same. A new job
// that the validating webhook would refuse is corrected or refused by the defaulting one.
func Register(server webhook.Server, options Options) {
	validator := &validator{
		filter: options.Filter, kinds: options.Kinds, resizableGroups: options.ResizableGroups, rayAndSparkMayLeave: options.RayAndSparkMayLeave,
		gatedBy: !options.NoGates, topology: !options.NoTopology, noSliceLayers: options.NoSliceLayers,
	}
	serve(server, &webhook.Admission{Handler: &defaulter{validator, options.MultiKueue, options.DefaultPriorityClass}}, &webhook.Admission{Handler: validator})
}

func serve(server webhook.Server, defaulting, validating http.Handler) {
	server.Register(Path, defaulting)
	for _, kind := range kinds.Table() {
		name := strings.ReplaceAll(kind.GVK.Group, ".", "-") + "-" + kind.GVK.Version + "-" + strings.ToLower(kind.GVK.Kind)
		server.Register("/mutate-"+name, defaulting)
		server.Register("/validate-"+name, validating)
	}
}
