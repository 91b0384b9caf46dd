package kinds

import (
	"encoding/json"
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// checkUpdatesAnnotation of a job has the labels and annotations that admission checks added to its templates. When these
// are restored no check tells of them any more: an eviction has them begin anew. Left where they are, they would contradict
// those of the next try. Who forges it has these keys of the job's own templates reset to what its author wrote.
const checkUpdatesAnnotation = "elasticai.io/check-updates"

// checkUpdates are keys that admission checks added.
type checkUpdates struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

func (u *checkUpdates) add(update *kueue.PodSetUpdate) {
	u.Labels = slices.AppendSeq(u.Labels, maps.Keys(update.Labels))
	u.Annotations = slices.AppendSeq(u.Annotations, maps.Keys(update.Annotations))
}

// noteCheckUpdates notes in a job what its checks add; nil infos: nothing any more.
func (j Object) noteCheckUpdates(infos []PodSetInfo) error {
	var all checkUpdates
	for i := range infos {
		all.Labels = append(all.Labels, infos[i].checks.Labels...)
		all.Annotations = append(all.Annotations, infos[i].checks.Annotations...)
	}
	if len(all.Labels)+len(all.Annotations) == 0 {
		annotations := j.GetAnnotations()
		if _, noted := annotations[checkUpdatesAnnotation]; noted {
			delete(annotations, checkUpdatesAnnotation)
			j.SetAnnotations(annotations)
		}
		return nil
	}
	for _, keys := range []*[]string{&all.Labels, &all.Annotations} {
		slices.Sort(*keys)
		*keys = slices.Compact(*keys)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	SetAnnotation(j, checkUpdatesAnnotation, string(text))
	return nil
}

// checkUpdates are those that are noted in a job, and those that its workload's checks still tell of. What cannot be read is
// nothing.
func (j Object) checkUpdates(wl *kueue.Workload) (u checkUpdates) {
	if json.Unmarshal([]byte(j.GetAnnotations()[checkUpdatesAnnotation]), &u) != nil {
		u = checkUpdates{}
	}
	for _, check := range wl.Status.AdmissionChecks {
		for i := range check.PodSetUpdates {
			u.add(&check.PodSetUpdates[i])
		}
	}
	return u
}
