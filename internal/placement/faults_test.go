package placement

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each test here is a fault of the schedulers that came before, and fails on their behaviour.

func TestSidecarWithoutCardsGetsNone(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000))
	pod := Pod{Key: "ns/p", Containers: []Container{{Name: "sidecar"}, {Name: "main", Cards: share(t, 60, 0)}}}
	a := assign(t, e, &pod, "a")
	if len(a.Grants) != 1 || a.Grants[0].Container != "main" {
		t.Fatalf("grants %v: want one, for main", a.Grants)
	}
	e.Release("ns/p")
	if free := status(t, e, "a").Cards[0].FreeCore; free != 1000 {
		t.Fatalf("free core after release is %d, want 1000: a sidecar was credited", free)
	}
}

func TestSpreadTellsNodesApartWithinRange(t *testing.T) {
	for _, policy := range []string{"spread", "binpack", "fragmentation", "load", "topology", "random"} {
		e := newEngine(t, Options{Policy: policy}, gpuNode("a", 2, "T4", 16000), gpuNode("b", 2, "T4", 16000), gpuNode("c", 2, "T4", 16000))
		bind(t, e, sharePod(t, "ns/0", 70), "a", 0)
		bind(t, e, sharePod(t, "ns/1", 30), "b", 0)
		pod := sharePod(t, "ns/2", 20)
		scores, err := e.Score(&pod, []string{"a", "b", "c"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scores {
			if s < 0 || s > MaxScore {
				t.Errorf("%s: scores %v leave 0..%d", policy, scores, MaxScore)
			}
		}
		if policy == "spread" && (scores[2] <= scores[1] || scores[1] <= scores[0]) {
			t.Errorf("spread scores %v: want the emptiest node highest", scores)
		}
		if policy == "binpack" && (scores[0] <= scores[1] || scores[1] <= scores[2]) {
			t.Errorf("binpack scores %v: want the fullest node highest", scores)
		}
	}
}

func TestFilterSeesThatANodeFilledUp(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000))
	pod := sharePod(t, "ns/1", 60)
	if v := filter(t, e, &pod, "a"); v != Fits {
		t.Fatalf("empty node: %v", v)
	}
	bind(t, e, sharePod(t, "ns/0", 60), "a", 0)
	if v := filter(t, e, &pod, "a"); v != FewCards {
		t.Fatalf("full node: %v, want %v", v, FewCards)
	}
	apply(t, e, PodGone{"ns/0"})
	if v := filter(t, e, &pod, "a"); v != Fits {
		t.Fatalf("after the pod is gone: %v", v)
	}
}

func TestUnseenNodeIsRefusedNotFatal(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000))
	pod := sharePod(t, "ns/1", 60)
	scores, err := e.Score(&pod, []string{"ghost", "a"}, nil)
	if err != nil || scores[0] != 0 || scores[1] != MaxScore {
		t.Fatalf("scores %v, %v", scores, err)
	}
	if v := filter(t, e, &pod, "ghost"); v != NodeUnknown {
		t.Fatalf("filter: %v", v)
	}
	if _, err := e.Assign(&pod, "ghost", time.Time{}); !errors.Is(err, ErrUnknown) {
		t.Fatalf("assign: %v", err)
	}
}

func TestFailedBindLeavesNothingBehind(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000))
	pod := sharePod(t, "ns/1", 60)
	assign(t, e, &pod, "a")
	other := sharePod(t, "ns/2", 60)
	var refusal *Refusal
	if _, err := e.Assign(&other, "a", time.Time{}); !errors.As(err, &refusal) || refusal.Nodes[FewCards] != 1 {
		t.Fatalf("second pod: %v, want a refusal for lack of capacity", err)
	}
	e.Release("ns/1")
	assign(t, e, &other, "a")
}

func TestCardsOfANodeDiffer(t *testing.T) {
	n := gpuNode("a", 2, "T4", 16000)
	n.Cards[1].Model, n.Cards[1].Memory = "A100", 80000
	e := newEngine(t, Options{Policy: "binpack"}, n)
	big := Pod{Key: "ns/big", Containers: []Container{{Name: "c", Cards: CardRequest{Count: 1, Memory: 40000}}}}
	if a := assign(t, e, &big, "a"); a.Grants[0].Cards[0].Index != 1 {
		t.Fatalf("40000 MiB went to card %d", a.Grants[0].Cards[0].Index)
	}
	two := Pod{Key: "ns/two", Containers: []Container{{Name: "c", Cards: CardRequest{Count: 2, Memory: 20000}}}}
	if v := filter(t, e, &two, "a"); v != CardsDiffer {
		t.Fatalf("two cards of 20000 MiB: %v, want %v", v, CardsDiffer)
	}
	n.Cards[0].Memory = 80000
	apply(t, e, NodeChanged{n})
	if v := filter(t, e, &two, "a"); v != Fits {
		t.Fatalf("after the node changed: %v", v)
	}
	slow := Pod{Key: "ns/slow", Containers: []Container{{Name: "c", Cards: CardRequest{Count: 1, TFLOPS: 32.5}}}}
	fast := Pod{Key: "ns/fast", Containers: []Container{{Name: "c", Cards: CardRequest{Count: 1, TFLOPS: 100}}}}
	if a := assign(t, e, &fast, "a"); a.Grants[0].Cards[0] != (CardGrant{Index: 1, Core: 321}) {
		t.Fatalf("100 TFLOPS: %v, want 321 thousandths of the A100", a.Grants)
	}
	slow.Containers[0].Cards.Models = []string{"T4", "P4"}
	if a := assign(t, e, &slow, "a"); a.Grants[0].Cards[0] != (CardGrant{Index: 0, Core: 500}) {
		t.Fatalf("32.5 TFLOPS: %v, want half of the T4", a.Grants)
	}
}

func TestOddCoreIsAnErrorThatSaysWhatToWrite(t *testing.T) {
	_, err := Percent(150, 0)
	var request *RequestError
	if !errors.As(err, &request) || !strings.Contains(err.Error(), "100 or 200") {
		t.Fatalf("core 150: %v", err)
	}
	for core, want := range map[int64]CardRequest{
		1:   {Count: 1, Core: 10},
		99:  {Count: 1, Core: 990},
		100: {Count: 1, Core: 1000, Exclusive: true},
		800: {Count: 8, Core: 1000, Exclusive: true},
	} {
		got, err := Percent(core, 0)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("core %d: %v, %v; want %v", core, got, err, want)
		}
	}
	e := newEngine(t, Options{}, gpuNode("a", 4, "T4", 16000))
	pod := Pod{Key: "ns/p", Containers: []Container{{Name: "main", Cards: CardRequest{Count: 1, Core: 1500}}}}
	if _, err := e.Assign(&pod, "a", time.Time{}); !errors.As(err, &request) || request.Container != "main" {
		t.Fatalf("core 1500 of one card: %v", err)
	}
}

func TestCoreAndMemoryComeFromTheSameCard(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 2, "T4", 16000))
	// Card 0 has core left but no memory, card 1 memory but no core.
	bind(t, e, Pod{Key: "ns/m", Containers: []Container{{Name: "c", Cards: CardRequest{Count: 1, Memory: 15000}}}}, "a", 0)
	bind(t, e, Pod{Key: "ns/c", Containers: []Container{{Name: "c", Cards: CardRequest{Count: 1, Core: 900}}}}, "a", 1)
	both := Pod{Key: "ns/both", Containers: []Container{{Name: "c", Cards: share(t, 20, 4000)}}}
	if v := filter(t, e, &both, "a"); v != FewCards {
		t.Fatalf("%v, want %v: core and memory were taken from different cards", v, FewCards)
	}
	small := Pod{Key: "ns/small", Containers: []Container{{Name: "c", Cards: share(t, 20, 1000)}}}
	if a := assign(t, e, &small, "a"); a.Grants[0].Cards[0] != (CardGrant{Index: 0, Core: 200, Memory: 1000}) {
		t.Fatalf("got %v", a.Grants)
	}
}

// A node goes while others come: scores of nodes that are no longer there are not compared.
func TestNodeGoesWhileOthersCome(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000), gpuNode("b", 1, "T4", 16000))
	pod := sharePod(t, "p", 20)
	if _, err := e.Best(&pod); err != nil {
		t.Fatal(err)
	}
	apply(t, e, NodeChanged{gpuNode("c", 1, "T4", 16000)})
	apply(t, e, NodeGone{"a"})
	if best, err := e.Best(&pod); err != nil || best == "a" {
		t.Errorf("the best node is %q, %v", best, err)
	}
}
