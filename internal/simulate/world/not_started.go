package world

// NotStarted are jobs of a queue that wait for the same, and never started.
type NotStarted struct {
	Queue string   `json:"queue"`
	Why   string   `json:"why"`
	Jobs  []string `json:"jobs"`
}

// mostExplained bounds for how many kinds of jobs it is found out why they never started: others say what is known of one like them in
// their queue.
const mostExplained = 64

// notStarted groups the jobs of the trace that were submitted and never started.
func (w *World) notStarted() []NotStarted {
	type kind struct {
		queue string
		request
	}
	type group struct{ queue, why string }
	known, last, at := map[kind]string{}, map[string]string{}, map[group]int{}
	var out []NotStarted
	for i := range w.jobs {
		j := &w.trace.Jobs[i]
		if j.Found != nil || w.jobs[i].phase != waiting || w.jobs[i].run > 0 {
			continue
		}
		of := kind{j.Queue, request{j.Cards, j.CPU, j.Memory}}
		why, explained := known[of]
		switch {
		case explained:
		case len(known) < mostExplained:
			x := w.Explain(i)
			why = w.named(x.Message)
			known[of], last[j.Queue] = why, why
		default:
			why = last[j.Queue]
		}
		g := group{j.Queue, why}
		if _, there := at[g]; !there {
			at[g] = len(out)
			out = append(out, NotStarted{Queue: j.Queue, Why: why})
		}
		out[at[g]].Jobs = append(out[at[g]].Jobs, j.ID)
	}
	return out
}
