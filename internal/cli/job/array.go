package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"sigs.k8s.io/controller-runtime/pkg/client"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// An array is a job for each index, each queued by itself, as in Slurm. They have a label in common, and know their index by
// an environment variable.

// arrayIndexVariable has a job's index in its array.
const arrayIndexVariable = "ELASTIC_ARRAY_INDEX"

// mostArrayJobs is how many jobs one command submits.
const mostArrayJobs = 1000

// arrayIndexes reads indexes as Slurm writes them: 0-9, or 1,3,7-8.
func arrayIndexes(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, several := strings.Cut(strings.TrimSpace(part), "-")
		if !several {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		if err1 != nil || err2 != nil || last < first {
			return nil, fmt.Errorf("--array: %q: write indexes as in 0-9 or 1,3,7-8", text)
		}
		if last-first >= mostArrayJobs || len(list) >= mostArrayJobs {
			return nil, fmt.Errorf("--array: more than %d jobs", mostArrayJobs)
		}
		for i := first; i <= last; i++ {
			list = append(list, int(i))
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > mostArrayJobs {
		return nil, fmt.Errorf("--array: more than %d jobs", mostArrayJobs)
	}
	return list, nil
}

// member is the job of one index.
func (s *submission) member(index int) *submission {
	one := *s
	one.name = s.name + "-" + strconv.Itoa(index)
	one.envs = append(slices.Clip(s.envs), arrayIndexVariable+"="+strconv.Itoa(index))
	one.labels = append(slices.Clip(s.labels), queuepolicy.ArrayLabel+"="+s.name)
	return &one
}

// array sends a job for each index of --array.
func (s *sending) array(cmd *cobra.Command, c *cluster.Client, f *form, sub *submission, namespace string) error {
	indexes, err := arrayIndexes(sub.indexes)
	if err != nil {
		return err
	}
	if s.wait {
		return errors.New("--wait is for one job: wait for those of an array by their names")
	}
	each := eachResolver{client: c, indexed: map[string]bool{}}
	var all [][]*unstructured.Unstructured
	for _, index := range indexes {
		one := sub.member(index)
		if problems := validation.IsDNS1123Label(one.name); len(problems) > 0 {
			return fmt.Errorf("%q cannot be a job's name: %s", one.name, problems[0])
		}
		objects, err := one.objects(f, namespace)
		if err != nil {
			return err
		}
		after, err := each.entries(cmd.Context(), s.afterEach, index)
		if err != nil {
			return fmt.Errorf("--after-each: %w", err)
		}
		if err := comeAfter(cmd.Context(), c, objects[:1], append(slices.Clip(s.after), after...)); err != nil {
			return err
		}
		all = append(all, objects)
	}
	switch {
	case s.dryRun:
		return s.show(cmd.OutOrStdout(), slices.Concat(all...))
	case s.check:
		var jobs []*unstructured.Unstructured
		for _, objects := range all {
			jobs = append(jobs, objects[0])
		}
		return s.plan(cmd, c, &s.output, jobs)
	}
	return s.createArray(cmd, c, all)
}

func (s *sending) createArray(cmd *cobra.Command, c *cluster.Client, all [][]*unstructured.Unstructured) error {
	for i, objects := range all {
		if err := create(cmd, c, objects); err != nil {
			return fmt.Errorf("%d of %d jobs were submitted: %w", i, len(all), err)
		}
	}
	out := cmd.OutOrStdout()
	if s.output.Format != "" {
		for _, objects := range all {
			if err := s.show(out, objects[:1]); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(out, "%d jobs have been submitted: %s to %s\n", len(all), all[0][0].GetName(), all[len(all)-1][0].GetName())
	fmt.Fprintf(out, "You can run `%s list` to check their status\n", cmd.Root().Name())
	return nil
}

// eachResolver says what a job of an array comes after: the job of the same index of another array, or that index of an
// indexed Job.
type eachResolver struct {
	client  *cluster.Client
	indexed map[string]bool // what was found out: by the name, whether it is an indexed Job
}

func (r *eachResolver) entries(ctx context.Context, each []string, index int) ([]string, error) {
	var out []string
	for entry := range strings.SplitSeq(strings.Join(each, ","), ",") {
		if len(each) == 0 {
			break
		}
		words := strings.Fields(entry)
		if len(words) == 1 {
			words = []string{string(workload.WhenOK), words[0]}
		}
		if len(words) != 2 {
			return nil, fmt.Errorf(`%q: write JOB, or "any JOB", "notok JOB"`, strings.TrimSpace(entry))
		}
		text, err := r.of(ctx, words[1], index)
		if err != nil {
			return nil, err
		}
		out = append(out, words[0]+" "+text)
	}
	return out, nil
}

// of names what an index of the job or array comes after.
func (r *eachResolver) of(ctx context.Context, name string, index int) (string, error) {
	known, found := r.indexed[name]
	if !found {
		var err error
		if known, err = r.isIndexed(ctx, name); err != nil {
			return "", err
		}
		r.indexed[name] = known
	}
	if known {
		kind, bare, typed := strings.Cut(name, "/")
		if !typed {
			kind, bare = "job", name
		}
		return fmt.Sprintf("%s/%s[%d]", kind, bare, index), nil
	}
	return name + "-" + strconv.Itoa(index), nil
}

// isIndexed: there is an indexed Job of that name. Without a cluster it is taken for an array.
func (r *eachResolver) isIndexed(ctx context.Context, name string) (bool, error) {
	kind, bare, typed := strings.Cut(name, "/")
	if r.client == nil || strings.Contains(bare, "/") || typed && kind != "job" {
		return false, nil
	}
	if !typed {
		bare = name
	}
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.client.Namespace, Name: bare}, job)
	mode, _, _ := unstructured.NestedString(job.Object, "spec", "completionMode")
	switch {
	case absent(err):
		return false, nil
	case err != nil:
		return false, err
	case mode != string(batchv1.IndexedCompletion):
		return false, fmt.Errorf("job/%s is neither an array nor an indexed Job", bare)
	}
	return true, nil
}

// membersOf are the jobs of an array, as dependencies name them.
func membersOf(ctx context.Context, c *cluster.Client, array, typed string) ([]string, error) {
	jobs, err := List(ctx, c, c.Namespace, typed)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, j := range jobs {
		if j.Object.GetLabels()[queuepolicy.ArrayLabel] == array {
			names = append(names, strings.ToLower(j.Object.GetKind())+"/"+j.Object.GetName())
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
