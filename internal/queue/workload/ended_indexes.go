package workload

import (
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// EndedIndexes are how those indexes of a job ended that others wait for, as its workload says, written by the job's
// controller: "ok 0-3,5 notok 4".
type EndedIndexes struct{ OK, NotOK []int }

// longestEndedIndexes bounds what is written: of more, the first. They become fewer as those that wait note what came true.
const longestEndedIndexes = 16 << 10

// String is what the annotation says.
func (e EndedIndexes) String() string {
	var parts []string
	for _, part := range []struct {
		when When
		list []int
	}{{WhenOK, e.OK}, {WhenNotOK, e.NotOK}} {
		if text := indexList(part.list); text != "" {
			parts = append(parts, string(part.when)+" "+text)
		}
	}
	return strings.Join(parts, " ")
}

// indexList writes sorted indexes as a Job's status does.
func indexList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list) && b.Len() < longestEndedIndexes; {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(list[j]))
		}
		i = j + 1
	}
	return b.String()
}

// ReadEndedIndexes are the ranges of indexes that an annotation tells of. Somebody else may have written it.
func ReadEndedIndexes(annotation string) (list []IndexRange) {
	if len(annotation) > 3*longestEndedIndexes {
		return nil
	}
	words := strings.Fields(annotation)
	for i := 0; i+1 < len(words); i += 2 {
		outcome := Failed
		if When(words[i]) == WhenOK {
			outcome = Succeeded
		}
		for part := range strings.SplitSeq(words[i+1], ",") {
			if first, last, err := indexRange(part); part != "" && err == nil {
				list = append(list, IndexRange{first, last, outcome})
			}
		}
	}
	return list
}

// IndexRange is a range of indexes that ended alike.
type IndexRange struct {
	First, Last int
	Outcome     Outcome
}

// AwaitedIndexes are the jobs of which a workload waits for indexes, as namespace/name, and which.
func AwaitedIndexes(wl *kueue.Workload) map[string][]int {
	if !strings.Contains(wl.Annotations[v1alpha1.AfterAnnotation], "[") {
		return nil
	}
	list, err := UnmetDependencies(wl)
	if err != nil {
		return nil
	}
	awaited := map[string][]int{}
	for _, d := range list {
		if n, err := strconv.Atoi(d.Index); err == nil {
			job := d.Namespace + "/" + d.Name
			awaited[job] = append(awaited[job], n)
		}
	}
	return awaited
}
