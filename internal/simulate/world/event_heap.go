package world

// eventKind orders what happens in one second: what ends frees its cards before anybody is decided on.
type eventKind uint8

const (
	jobEnds eventKind = iota
	nodeFails
	nodeTaken
	nodeReturns
	limitReached // of a job: nothing but the step in which the engine ends it
)

// event is something that is to happen. Of a job it counts only if the job was not started anew since, of a spot node only
// if no other came for it.
type event struct {
	at   int64
	kind eventKind
	of   int32 // job or node
	run  int32 // the job's, or the node's life
}

func (e event) before(o event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.kind != o.kind {
		return e.kind < o.kind
	}
	return e.of < o.of
}

// eventHeap is a binary heap without boxing: a million jobs pass through it.
type eventHeap []event

func (h *eventHeap) push(e event) {
	list := append(*h, e)
	i := len(list) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !list[i].before(list[up]) {
			break
		}
		list[i], list[up] = list[up], list[i]
		i = up
	}
	*h = list
}

func (h *eventHeap) pop() event {
	list := *h
	first, last := list[0], len(list)-1
	list[0] = list[last]
	list = list[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if list[down].before(list[least]) {
				least = down
			}
		}
		if least == i {
			break
		}
		list[i], list[least] = list[least], list[i]
		i = least
	}
	*h = list
	return first
}
