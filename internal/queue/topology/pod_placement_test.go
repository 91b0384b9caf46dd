package topology

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// racks is an assignment of two pods to a1, one to a2 and two to b1.
var racks = &kueue.TopologyAssignment{
	Levels: []string{"rack", "host"},
	Slices: []kueue.TopologyAssignmentSlice{
		{
			DomainCount: 2, PodCounts: kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{2, 1}},
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{
				{Universal: ptr.To("a")}, {Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: ptr.To("a"), Roots: []string{"1", "2"}}},
			},
		},
		{
			DomainCount: 1, PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: ptr.To(int32(2))},
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: ptr.To("b")}, {Universal: ptr.To("b1")}},
		},
	},
}

// pods are "rank" for one that waits and "rank@host" for one that was sent;
// a rank of - is none.
func pods(text string) []*corev1.Pod {
	var out []*corev1.Pod
	for i, word := range strings.Fields(text) {
		pod := &corev1.Pod{}
		pod.Name = fmt.Sprintf("p%d", i)
		rank, host, sent := strings.Cut(word, "@")
		if rank != "-" {
			pod.Labels = map[string]string{"index": rank}
		}
		if sent {
			pod.Spec.NodeSelector = map[string]string{"rack": host[:1], "host": host}
		} else {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		}
		out = append(out, pod)
	}
	return out
}

func TestPlace(t *testing.T) {
	ranked := &kueue.PodSetTopologyRequest{PodIndexLabel: ptr.To("index")}
	for name, test := range map[string]struct {
		request *kueue.PodSetTopologyRequest
		first   int
		pods    string
		want    string // pod=host
	}{
		"by rank":                           {request: ranked, pods: "4 3 2 1 0", want: "p0=b1 p1=b1 p2=a2 p3=a1 p4=a1"},
		"by rank, some are there":           {request: ranked, pods: "0@a1 2@a2 4", want: "p2=b1"},
		"ranks begin after the leader's":    {request: ranked, first: 1, pods: "1 5", want: "p0=a1 p1=b1"},
		"without ranks, the first free":     {pods: "- - - - -", want: "p0=a1 p1=a1 p2=a2 p3=b1 p4=b1"},
		"without ranks, what is taken":      {pods: "-@a1 - -@b1 - -", want: "p1=a1 p3=a2 p4=b1"},
		"one without a rank":                {request: ranked, pods: "1 -", want: "p0=a1 p1=a1"},
		"two of one rank":                   {request: ranked, pods: "4 4", want: "p0=a1 p1=a1"},
		"one runs elsewhere":                {request: ranked, pods: "0@b1 4", want: "p1=a1"},
		"more pods than places: some wait":  {pods: "- - - - - -", want: "p0=a1 p1=a1 p2=a2 p3=b1 p4=b1"},
		"a rank that has no place":          {request: ranked, pods: "5 0", want: "p0=a1 p1=a1"},
		"a replacement goes where one left": {request: ranked, pods: "0@a1 1@a1 3@b1 4@b1 2", want: "p4=a2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := placedPodSet{assigned: &kueue.PodSetAssignment{Name: "main", Count: ptr.To(int32(5)), TopologyAssignment: racks}, request: test.request, first: test.first}
			var got []string
			for _, m := range s.place(pods(test.pods)) {
				if m.labels["rack"] != m.labels["host"][:1] {
					t.Errorf("labels %v do not belong together", m.labels)
				}
				got = append(got, m.pod.Name+"="+m.labels["host"])
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

// Two jobs of a replicated job, of two pods each: the second one's pods come
// after the first one's.
func TestRanksOfGroups(t *testing.T) {
	request := &kueue.PodSetTopologyRequest{PodIndexLabel: ptr.To("index"), SubGroupIndexLabel: ptr.To("job"), SubGroupCount: ptr.To(int32(2))}
	s := placedPodSet{assigned: &kueue.PodSetAssignment{Name: "main", Count: ptr.To(int32(4)), TopologyAssignment: racks}, request: request}
	list := pods("0 1 0 1")
	for i, pod := range list {
		pod.Labels["job"] = strconv.Itoa(i / 2)
	}
	var got []string
	for _, m := range s.place(list) {
		got = append(got, m.labels["host"])
	}
	if text := strings.Join(got, " "); text != "a1 a1 a2 b1" {
		t.Errorf("got %s", text)
	}
}

func TestLeaderComesFirst(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Status.Admission = &kueue.Admission{}
	for name, count := range map[kueue.PodSetReference]int32{"leader": 1, "workers": 4} {
		wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: name, Count: count, TopologyRequest: &kueue.PodSetTopologyRequest{PodSetGroupName: ptr.To("group")}})
		wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: name, Count: &count, TopologyAssignment: racks})
	}
	for _, s := range setsOf(wl) {
		if want := map[kueue.PodSetReference]int{"leader": 0, "workers": 1}[s.assigned.Name]; s.first != want {
			t.Errorf("ranks of %s begin at %d, want %d", s.assigned.Name, s.first, want)
		}
	}
}
