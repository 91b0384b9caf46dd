package kinds

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trainJob has its pod templates in a training runtime, another object; what an admission adds to
// them is written into a patch of its own.
type trainJob struct{}

// runtimePatchManager names our entry among the TrainJob's runtime patches. It is Kueue's name, so
// that jobs can be taken over from Kueue.
const runtimePatchManager = "kueue.x-k8s.io/manager"

// The labels and names by which the trainer distinguishes a runtime's jobs.
const (
	trainerStepLabel = "trainer.kubeflow.org/trainjob-ancestor-step"
	trainerStep      = "trainer"
	trainerNode      = "node"
	mpiLauncher      = "launcher"
)

// jobSetIndexLabel numbers the jobs of a replicated job.
const jobSetIndexLabel = "jobset.sigs.k8s.io/job-index"

// trainingRuntime is the part of a (Cluster)TrainingRuntime that describes its pods.
type trainingRuntime struct {
	MLPolicy *struct {
		NumNodes *int32 `json:"numNodes"`
		MPI      *struct {
			RunLauncherAsNode *bool `json:"runLauncherAsNode"`
		} `json:"mpi"`
	} `json:"mlPolicy"`
	Template struct {
		Spec struct {
			ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
		} `json:"spec"`
	} `json:"template"`
}

type replicatedJob struct {
	Name     string                  `json:"name"`
	Replicas *int32                  `json:"replicas"`
	Template batchv1.JobTemplateSpec `json:"template"`
}

// trainJobSpec is the part of a TrainJob that overrides its runtime.
type trainJobSpec struct {
	RuntimeRef struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"runtimeRef"`
	Trainer *struct {
		NumNodes         *int32                       `json:"numNodes"`
		ResourcesPerNode *corev1.ResourceRequirements `json:"resourcesPerNode"`
	} `json:"trainer"`
	RuntimePatches []struct {
		Manager string `json:"manager"`
		Spec    *struct {
			Template *struct {
				Spec *struct {
					ReplicatedJobs []struct {
						Name     string         `json:"name"`
						Template map[string]any `json:"template"`
					} `json:"replicatedJobs"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"trainingRuntimeSpec"`
	} `json:"runtimePatches"`
}

func (trainJob) patchesWhileSuspended() bool { return true }

func (trainJob) podSets(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) ([]kueue.PodSet, error) {
	var spec trainJobSpec
	if err := convert(obj.Object["spec"], &spec); err != nil {
		return nil, &UnretryableError{err}
	}
	rt, err := runtimeOf(ctx, c, obj, spec)
	if err != nil {
		return nil, err
	}
	var sets []kueue.PodSet
	for _, rj := range rt.Template.Spec.ReplicatedJobs {
		if rj.Template, err = spec.patched(rj); err != nil {
			return nil, &UnretryableError{err}
		}
		template := rj.Template.Spec.Template
		spec.resize(rt, rj, &template)
		sets = append(sets, kueue.PodSet{
			Name:     kueue.PodSetReference(rj.Name),
			Template: *normalizeTemplate(&template),
			Count:    spec.pods(rt, rj),
			TopologyRequest: topologyRequest(&template.ObjectMeta, numbering{
				podIndex: ptr.To(batchv1.JobCompletionIndexAnnotation), groupIndex: ptr.To(jobSetIndexLabel), groups: ptr.To(ptr.Deref(rj.Replicas, 1)),
			}),
		})
	}
	if len(sets) == 0 {
		return nil, &UnretryableError{fmt.Errorf("%s %s has no replicated jobs", spec.RuntimeRef.Kind, spec.RuntimeRef.Name)}
	}
	return sets, nil
}

func runtimeOf(ctx context.Context, c client.Reader, obj *unstructured.Unstructured, spec trainJobSpec) (*trainingRuntime, error) {
	kind := cmp.Or(spec.RuntimeRef.Kind, "ClusterTrainingRuntime")
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: kind})
	key := client.ObjectKey{Name: spec.RuntimeRef.Name}
	if kind == "TrainingRuntime" {
		key.Namespace = obj.GetNamespace()
	}
	err := c.Get(ctx, key, source)
	if apierrors.IsNotFound(err) {
		return nil, &MissingError{fmt.Errorf("%s %s does not exist", kind, key.Name)}
	}
	if err != nil {
		return nil, err
	}
	rt := &trainingRuntime{}
	return rt, convert(source.Object["spec"], rt)
}

// patched applies the user's runtime patches to a job's template. Our own patch is left out: it
// contains only what an admission added.
func (s trainJobSpec) patched(rj replicatedJob) (batchv1.JobTemplateSpec, error) {
	template := rj.Template
	for _, patch := range s.RuntimePatches {
		if patch.Manager == runtimePatchManager || patch.Spec == nil || patch.Spec.Template == nil || patch.Spec.Template.Spec == nil {
			continue
		}
		for _, change := range patch.Spec.Template.Spec.ReplicatedJobs {
			if change.Name != rj.Name || change.Template == nil {
				continue
			}
			original, err := json.Marshal(template)
			if err != nil {
				return template, err
			}
			delta, err := json.Marshal(change.Template)
			if err != nil {
				return template, err
			}
			merged, err := strategicpatch.StrategicMergePatch(original, delta, template)
			if err != nil {
				return template, fmt.Errorf("runtime patch of %s: %w", patch.Manager, err)
			}
			template = batchv1.JobTemplateSpec{}
			if err := json.Unmarshal(merged, &template); err != nil {
				return template, err
			}
		}
	}
	return template, nil
}

// trains: the job is the one that the TrainJob's trainer section describes.
func (rt *trainingRuntime) trains(rj replicatedJob) bool {
	return rj.Template.Labels[trainerStepLabel] == trainerStep || rt.launcherIsNode() && rj.Name == trainerNode
}

func (rt *trainingRuntime) launcherIsNode() bool {
	return rt.MLPolicy != nil && rt.MLPolicy.MPI != nil && ptr.Deref(rt.MLPolicy.MPI.RunLauncherAsNode, false)
}

func (s trainJobSpec) resize(rt *trainingRuntime, rj replicatedJob, template *corev1.PodTemplateSpec) {
	if s.Trainer == nil || s.Trainer.ResourcesPerNode == nil || !rt.trains(rj) {
		return
	}
	for i := range template.Spec.Containers {
		if template.Spec.Containers[i].Name == trainerNode {
			template.Spec.Containers[i].Resources = *s.Trainer.ResourcesPerNode
		}
	}
}

func (s trainJobSpec) pods(rt *trainingRuntime, rj replicatedJob) int32 {
	nodes := int32(1)
	if rt.MLPolicy != nil {
		nodes = ptr.Deref(rt.MLPolicy.NumNodes, nodes)
	}
	if s.Trainer != nil {
		nodes = ptr.Deref(s.Trainer.NumNodes, nodes)
	}
	switch mpi := rt.MLPolicy != nil && rt.MLPolicy.MPI != nil; {
	case mpi && rj.Name == mpiLauncher:
		return 1
	case mpi && rj.Name == trainerNode && rt.launcherIsNode():
		return max(nodes-1, 1)
	case mpi && rj.Name == trainerNode, rt.trains(rj):
		return nodes
	}
	// The trainer sets completions to the same.
	return ptr.Deref(rj.Replicas, 1) * max(ptr.Deref(rj.Template.Spec.Parallelism, 1), 1)
}

// trainJobStatus is the part of a TrainJob that says how many jobs of each of its replicated jobs are how far.
type trainJobStatus struct {
	JobsStatus []struct {
		Name      string `json:"name"`
		Ready     int32  `json:"ready"`
		Succeeded int32  `json:"succeeded"`
	} `json:"jobsStatus"`
}

// progress counts the jobs of the runtime: all are ready or done, and the pods of those that succeeded have
// finished.
func (trainJob) progress(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) (bool, map[kueue.PodSetReference]int32, error) {
	var spec trainJobSpec
	if err := convert(obj.Object["spec"], &spec); err != nil {
		return false, nil, &UnretryableError{err}
	}
	status := trainJobStatus{}
	if fields, found := obj.Object["status"].(map[string]any); found {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status); err != nil {
			return false, nil, &UnretryableError{err}
		}
	}
	if len(status.JobsStatus) == 0 {
		return false, nil, nil
	}
	rt, err := runtimeOf(ctx, c, obj, spec)
	if err != nil {
		return false, nil, err
	}
	jobs, upOrDone := int32(0), int32(0)
	done := map[kueue.PodSetReference]int32{}
	for _, rj := range rt.Template.Spec.ReplicatedJobs {
		replicas := ptr.Deref(rj.Replicas, 1)
		jobs += replicas
		for _, is := range status.JobsStatus {
			if is.Name == rj.Name && is.Succeeded > 0 && is.Succeeded <= replicas {
				done[kueue.PodSetReference(rj.Name)] = is.Succeeded * (spec.pods(rt, rj) / replicas)
			}
		}
	}
	for _, is := range status.JobsStatus {
		upOrDone += is.Ready + is.Succeeded
	}
	return upOrDone == jobs, done, nil
}

// prepare adds our patch, still empty: patches are applied in order, and those that the user or another
// controller adds later come after it.
func (t trainJob) prepare(obj *unstructured.Unstructured) error {
	return t.setPodSetInfos(obj, nil, []PodSetInfo{})
}

// setPodSetInfos leaves our patch where it is in the list, empty where there is nothing to add.
func (trainJob) setPodSetInfos(obj *unstructured.Unstructured, base []kueue.PodSet, infos []PodSetInfo) error {
	changes := map[string]any{}
	for i := range base {
		if infos == nil {
			break
		}
		change, err := replicatedJobPatch(base[i].Name, infos[i])
		if err != nil {
			return err
		}
		list, _ := changes["replicatedJobs"].([]any)
		changes["replicatedJobs"] = append(list, change)
	}
	patch := map[string]any{"manager": runtimePatchManager, "trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": changes}}}
	spec, _ := obj.Object["spec"].(map[string]any)
	patches, _ := spec["runtimePatches"].([]any)
	at := slices.IndexFunc(patches, func(p any) bool {
		fields, ok := p.(map[string]any)
		return ok && fields["manager"] == runtimePatchManager
	})
	switch {
	case at >= 0:
		patches = slices.Clone(patches)
		patches[at] = patch
	case infos == nil:
		return nil
	default:
		patches = append(slices.Clip(patches), patch)
	}
	spec["runtimePatches"] = patches
	return nil
}

// replicatedJobPatch is what an admission adds to the pods of one of the runtime's jobs.
func replicatedJobPatch(name kueue.PodSetReference, info PodSetInfo) (any, error) {
	fields, err := info.asMap()
	if err != nil {
		return nil, err
	}
	meta, spec := map[string]any{}, map[string]any{}
	for name, value := range fields {
		if name == "labels" || name == "annotations" {
			meta[name] = value
			continue
		}
		spec[name] = value
	}
	template := map[string]any{"metadata": meta, "spec": spec}
	return map[string]any{"name": string(name), "template": map[string]any{"spec": map[string]any{"template": template}}}, nil
}

func convert(value any, into any) error {
	fields, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("it has no spec")
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
}
