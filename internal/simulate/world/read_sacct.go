package world

import (
	"bufio"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// peekSeparator finds out from the header whether fields stand between commas or bars.
func peekSeparator(from io.Reader) (io.Reader, rune, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	start, err := buffered.Peek(4096)
	if len(start) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, 0, err
	}
	header, _, _ := strings.Cut(string(start), "\n")
	if strings.Count(header, "|") > strings.Count(header, ",") {
		return buffered, '|', nil
	}
	return buffered, ',', nil
}

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
	start, started := l.date("Start")
	end, ended := l.date("End")
	if !started || !ended {
		return "did not run to an end"
	}
	j.Submit, _ = l.date("Submit")
	if j.Duration = end - start; l.raw("ElapsedRaw") != "" {
		j.Duration = l.number("ElapsedRaw", false, mostSeconds)
	}
	if j.Duration < 0 {
		l.fail("End", "%s is before Start", l.raw("End"))
	}
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
	if err != nil || f < 0 || f*math.Pow(2, float64(shift)) > 1<<60 {
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
