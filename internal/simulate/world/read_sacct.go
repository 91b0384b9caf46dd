package world

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// readSacct reads a line of "sacct -P": a job, or a step of one, which does not count.
func readSacct(l *line, j *Job) string {
	j.ID = l.name("JobID")
	if strings.Contains(j.ID, ".") {
		return "a job's step"
	}
	j.User = l.text("User")
	if j.Queue = l.text("Partition"); j.Queue == "" {
		j.Queue = l.text("Account")
	}
	if j.Queue == "" {
		j.Queue = "default"
	}
	submitted, known := l.date("Submit")
	start, started := l.date("Start")
	end, ended := l.date("End")
	elapsed := end - start
	if l.raw("ElapsedRaw") != "" { // clocks are put back
		elapsed = l.number("ElapsedRaw", false, mostSeconds)
	}
	j.Outcome = l.outcome("State")
	switch {
	case j.Outcome == IsCancelled && (!started || elapsed <= 0):
		return "was cancelled before it ran"
	case !started || !ended:
		return "did not run to an end"
	case !known:
		return "nobody knows when it was submitted"
	case elapsed < 0:
		return "ended before it started"
	}
	j.Submit, j.Duration = submitted, elapsed
	if limit := l.raw("TimelimitRaw"); limit != "" && limit != "UNLIMITED" && limit != "Partition_Limit" {
		j.Limit = 60 * l.number("TimelimitRaw", false, mostSeconds/60)
	}
	j.Priority = l.number("Priority", false, math.MaxUint32)
	column := "AllocTRES"
	if l.raw(column) == "" {
		column = "ReqTRES"
	}
	l.resources(column, j)
	return ""
}

// joinParts makes one gang of the parts of a heterogeneous job, 12+0 and 12+1, that are in one queue; those of others are told.
func (t *Trace) joinParts() {
	type job struct {
		id, queue string
		submit    int64
	}
	first, apart := map[job]int{}, map[string]string{}
	jobs := t.Jobs[:0]
	for _, j := range t.Jobs {
		id, _, part := strings.Cut(j.ID, "+")
		if !part {
			jobs = append(jobs, j)
			continue
		}
		key := job{id, j.Queue, j.Submit}
		at, known := first[key]
		if !known {
			if queue, other := apart[id]; other && queue != j.Queue {
				t.PartsApart++
			} else {
				apart[id], j.ID = j.Queue, id
			}
			first[key] = len(jobs)
			jobs = append(jobs, j)
			continue
		}
		whole := &jobs[at]
		whole.Cards, whole.CPU, whole.Memory = min(whole.Cards+j.Cards, mostCards), min(whole.CPU+j.CPU, 1000*mostCPUs), min(whole.Memory+j.Memory, mostMemory<<20)
		whole.Duration, whole.Limit = max(whole.Duration, j.Duration), max(whole.Limit, j.Limit)
		whole.Outcome = max(whole.Outcome, j.Outcome)
	}
	t.Jobs = jobs
}

// date is a time as Slurm writes it, in seconds; false for a job that has none yet.
func (l *line) date(column string) (int64, bool) {
	raw := l.raw(column)
	switch raw {
	case "", "Unknown", "None":
		return 0, false
	}
	if at, err := strconv.ParseInt(raw, 10, 64); err == nil && at >= 0 && at <= mostSeconds { // SLURM_TIME_FORMAT=%s
		return at, true
	}
	at, err := time.Parse("2006-01-02T15:04:05", raw)
	if err != nil {
		l.fail(column, "%q is not a time like 2026-01-31T23:59:59", raw)
		return 0, false
	}
	return at.Unix(), true
}

// resources reads trackable resources: "billing=8,cpu=64,gres/gpu=8,gres/gpu:h100=8,mem=512G,node=1".
func (l *line) resources(column string, j *Job) {
	typed := int64(0)
	for word := range strings.SplitSeq(l.raw(column), ",") {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case name == "cpu":
			j.CPU = 1000 * l.count(column, word, value, mostCPUs)
		case name == "mem":
			j.Memory = l.bytes(column, word, value)
		case name == "gres/gpu":
			j.Cards = int32(l.count(column, word, value, mostCards))
		case strings.HasPrefix(name, "gres/gpu:"):
			typed += l.count(column, word, value, mostCards)
		}
	}
	if j.Cards == 0 {
		j.Cards = int32(min(typed, mostCards))
	}
}

func (l *line) count(column, word, value string, most int64) int64 {
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil || v < 0 || v > most {
		l.fail(column, "%q: %q is not between 0 and %d", word, value, most)
		return 0
	}
	return v
}

func (l *line) bytes(column, word, value string) int64 {
	shift, number := 20, value
	if at := strings.IndexByte("KMGTP", lastByte(value)); at >= 0 {
		shift, number = 10*(at+1), value[:len(value)-1]
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0) || f*math.Pow(2, float64(shift)) > 1<<60 {
		l.fail(column, "%q: %q is not an amount of memory", word, value)
		return 0
	}
	return int64(f * math.Pow(2, float64(shift)))
}

func lastByte(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}
