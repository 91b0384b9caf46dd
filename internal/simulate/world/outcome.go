package world

import "strings"

// Outcome is how a job ends once it has run as long as it does, unless it reaches its limit before. What fails in it and is tried
// again, as pods of a Job are up to its backoffLimit, is part of its run time.
type Outcome uint8

// The outcomes.
const (
	Succeeds Outcome = iota
	Fails
	IsCancelled // somebody stops it while it runs
)

// ending is what happens to a job that has run as long as it does.
func (o Outcome) ending() What {
	switch o {
	case Fails:
		return Failed
	case IsCancelled:
		return Cancelled
	}
	return Ended
}

// outcomes by the words for them, in small letters, of Slurm, Kueue and phases of pods, and those that published traces have. What has
// not ended says nothing.
var outcomes = map[string]Outcome{
	"": Succeeds, "completed": Succeeds, "succeeded": Succeeds, "success": Succeeds, "pass": Succeeds, "passed": Succeeds, "terminated": Succeeds,
	"pending": Succeeds, "running": Succeeds, "waiting": Succeeds, "suspended": Succeeds,
	"failed": Fails, "fail": Fails, "error": Fails, "boot_fail": Fails, "deadline": Fails, "node_fail": Fails, "out_of_memory": Fails, "timeout": Fails,
	"preempted": Fails, "revoked": Fails,
	"cancelled": IsCancelled, "canceled": IsCancelled, "killed": IsCancelled,
}

// outcome that a column tells; a word that nobody knows is counted. Slurm adds who cancelled a job.
func (l *line) outcome(column string) Outcome {
	text := l.text(column)
	word, _, _ := strings.Cut(strings.ToLower(text), " ")
	out, known := outcomes[strings.TrimSuffix(word, "+")]
	if !known {
		l.unknown[column+" "+text]++
	}
	return out
}
