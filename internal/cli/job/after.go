package job

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// comeAfter has jobs come after those that --after names.
func comeAfter(ctx context.Context, c *cluster.Client, objects []*unstructured.Unstructured, after []string) error {
	if len(after) == 0 {
		return nil
	}
	var list []string
	for entry := range strings.SplitSeq(strings.Join(after, ","), ",") {
		texts, err := dependency(ctx, c, entry)
		if err != nil {
			return fmt.Errorf("--after: %w", err)
		}
		list = append(list, texts...)
	}
	text := strings.Join(list, ", ")
	if _, err := workload.Dependencies(text, "default"); err != nil {
		return fmt.Errorf("--after: %w", err)
	}
	for _, object := range objects {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[queuepolicy.AfterAnnotation] = text
		object.SetAnnotations(annotations)
	}
	return nil
}

// dependency is one entry of --after as the annotation has it: "ok" unless it says otherwise, with the kind of the job. Jobs
// of the same namespace must exist, as Slurm asks of them. The name of an array stands for all of its jobs.
func dependency(ctx context.Context, c *cluster.Client, entry string) ([]string, error) {
	words := strings.Fields(entry)
	if len(words) == 1 {
		words = []string{string(workload.WhenOK), words[0]}
	}
	if len(words) != 2 {
		return nil, fmt.Errorf(`%q: write JOB, or "any JOB", "notok JOB"`, strings.TrimSpace(entry))
	}
	kind, name, typed := strings.Cut(words[1], "/")
	if !typed {
		kind, name = "", words[1]
	}
	if strings.Contains(name, "/") || kind == workload.KindWorkload || c == nil && typed {
		return []string{strings.Join(words, " ")}, nil
	}
	if c == nil {
		return nil, fmt.Errorf("%q: without a cluster say what kind of job it is, as in job/%s", words[1], name)
	}
	bare, index, indexed := strings.Cut(name, "[")
	found, err := find(ctx, c, bare, kind)
	if err == nil {
		text := words[0] + " " + strings.ToLower(found.Object.GetKind()) + "/" + bare
		if indexed {
			text += "[" + index
		}
		return []string{text}, nil
	}
	members, failed := membersOf(ctx, c, name, kind)
	if failed != nil || len(members) == 0 {
		return nil, err
	}
	for i := range members {
		members[i] = words[0] + " " + members[i]
	}
	return members, nil
}
