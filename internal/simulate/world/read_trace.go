package world

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A format reads one line of a trace. Its columns tell it from the others.
type format struct {
	name     string
	required []string
	cards    []string // one of these must be there, too: it says how many cards jobs have
	optional []string
	read     func(*line, *Job) (skip string)
}

// formats, the first whose required columns are all there is taken.
var formats = []format{
	{
		name:     "jobs",
		required: []string{"job_id", "queue", "submit_s", "duration_s", "gpus"},
		optional: []string{"user", "cpus", "memory_mib", "priority", "limit_s", "status"},
		read:     readJob,
	},
	{
		name:     "openb",
		required: []string{"name", "num_gpu", "gpu_milli", "creation_time", "deletion_time"},
		optional: []string{"scheduled_time", "cpu_milli", "memory_mib", "qos", "pod_phase"},
		read:     readOpenb,
	},
	{
		name:     "sacct",
		required: []string{"JobID", "Submit", "Start", "End"},
		cards:    []string{"AllocTRES", "ReqTRES"},
		optional: []string{"User", "Partition", "Account", "ElapsedRaw", "TimelimitRaw", "State", "Priority"},
		read:     readSacct,
	},
}

// ReadTraceFile reads a trace from a file; "-" is standard input.
func ReadTraceFile(path string) (*Trace, error) {
	if path == "-" {
		return ReadTrace(os.Stdin, "standard input")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return ReadTrace(f, path)
}

// ReadTrace reads a trace in any of the formats: comma or, as sacct -P writes it, bar between fields. What cannot be
// read is named with line and column.
func ReadTrace(from io.Reader, name string) (*Trace, error) {
	buffered, comma, err := peekSeparator(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r := newRows(buffered, comma)
	header, err := r.read()
	if err != nil {
		return nil, fmt.Errorf("%s: line 1: %w", name, err)
	}
	l, f, err := newLine(header)
	if err != nil {
		return nil, fmt.Errorf("%s: line 1: %w", name, err)
	}
	t := &Trace{Name: name, Skipped: map[string]int{}, unknown: l.unknown, odd: l.misspelt(header, f)}
	columns := slices.Clone(header) // of which the reader uses the array again
	r.free = slices.Index(columns, "JobName")
	r.columns = len(columns)
	ids := map[string]int{} // the line of each
	for {
		l.fields, err = r.read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err) // names line and column itself
		}
		var j Job
		skip := ""
		if l.err = wrongNumber(l.fields, columns); l.err == nil {
			skip = f.read(l, &j)
		}
		number := r.line()
		if l.err != nil {
			return nil, fmt.Errorf("%s: line %d, %w", name, number, l.err)
		}
		if skip != "" {
			t.Skipped[skip]++
			continue
		}
		t.noteID(ids, j.ID, number, l.columns[f.required[0]]+1, f.required[0])
		t.Jobs = append(t.Jobs, j)
	}
	return t, t.check(f)
}

// noteID notes a job whose name another one has: it is simulated, but who asks for the name gets the first.
func (t *Trace) noteID(lines map[string]int, id string, line, column int, name string) {
	first, known := lines[id]
	if !known {
		lines[id] = line
		return
	}
	if t.Duplicates++; t.Duplicates == 1 {
		t.duplicate = fmt.Sprintf("line %d, column %d (%s): line %d has %s, too", line, column, name, first, id)
	}
}

// wrongNumber of fields: the column that the first one too few or too many is in.
func wrongNumber(fields, columns []string) error {
	switch n := len(fields); {
	case n < len(columns):
		return fmt.Errorf("column %d (%s): it is missing: the line has %d fields, the header has %d columns", n+1, strings.TrimSpace(columns[n]), n, len(columns))
	case n > len(columns):
		return fmt.Errorf("column %d: it is too much: the line has %d fields, the header has %d columns", len(columns)+1, n, len(columns))
	}
	return nil
}

// readTable reads a CSV file with some columns, a line at a time.
func readTable(from io.Reader, name string, columns []string, each func(*line)) error {
	r := csv.NewReader(withoutMark(from))
	r.FieldsPerRecord = -1
	header, err := r.Read()
	if err != nil {
		return fmt.Errorf("%s: line 1: %w", name, err)
	}
	l := &line{columns: map[string]int{}, texts: map[string]string{}}
	for i, column := range header {
		l.columns[columnName(column)] = i
	}
	for _, column := range columns {
		if _, ok := l.columns[column]; !ok {
			return fmt.Errorf("%s: line 1: no column %s", name, column)
		}
	}
	for {
		l.fields, err = r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if l.err = wrongNumber(l.fields, header); l.err == nil {
			each(l)
		}
		if l.err != nil {
			number, _ := r.FieldPos(0)
			return fmt.Errorf("%s: line %d, %w", name, number, l.err)
		}
	}
}

// check what only all lines together tell.
func (t *Trace) check(f *format) error {
	if _, why := LeftOut(t.Skipped); len(t.Jobs) == 0 && why != "" {
		return fmt.Errorf("%s: no job in it; left out: %s", t.Name, why)
	} else if len(t.Jobs) == 0 {
		return fmt.Errorf("%s: no job in it", t.Name)
	}
	first := int64(math.MaxInt64)
	for i := range t.Jobs {
		first = min(first, t.Jobs[i].Submit)
	}
	t.noteDates()
	dated := first >= firstDate && f.name != "openb"
	if dated {
		t.Start = time.Unix(first, 0).UTC()
	}
	if f.name != "jobs" || dated { // it does not begin at 0
		for i := range t.Jobs {
			t.Jobs[i].Submit -= first
		}
	}
	if f.name == "sacct" {
		t.joinParts()
	}
	t.sort()
	return nil
}

// firstDate is from when on seconds are taken to be a date, and not the time since a trace began: 9 September 2001.
const firstDate = 1_000_000_000

// line of a trace. The first problem is stored in err.
type line struct {
	columns map[string]int
	fields  []string
	texts   map[string]string // one copy of each text: users and queues are few
	unknown map[string]int    // how jobs ended, in words that nobody knows
	err     error
}

func newLine(header []string) (*line, *format, error) {
	l := &line{columns: map[string]int{}, texts: map[string]string{}, unknown: map[string]int{}}
	for i, name := range header {
		l.columns[columnName(name)] = i
	}
	for i := range formats {
		if !slices.ContainsFunc(formats[i].required, func(c string) bool { _, ok := l.columns[c]; return !ok }) {
			f := &formats[i]
			if len(f.cards) > 0 && !slices.ContainsFunc(f.cards, func(c string) bool { _, ok := l.columns[c]; return ok }) {
				return nil, nil, fmt.Errorf("no column %s: nothing says how many cards jobs have", strings.Join(f.cards, " or "))
			}
			return l, f, nil
		}
	}
	var known []string
	for _, f := range formats {
		known = append(known, f.name+" has "+strings.Join(f.required, ","))
	}
	return nil, nil, fmt.Errorf("columns %s are those of no known trace: %s",
		strings.Join(slices.Sorted(maps.Keys(l.columns)), ","), strings.Join(known, "; "))
}

func (l *line) fail(column, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("column %d (%s): %s", l.columns[column]+1, column, fmt.Sprintf(format, args...))
	}
}

// raw is a field as it is; empty where the trace has no such column.
func (l *line) raw(column string) string {
	i, ok := l.columns[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(l.fields[i])
}

// text is a field that outlives the line.
func (l *line) text(column string) string {
	raw := l.raw(column)
	if text, ok := l.texts[raw]; ok {
		return text
	}
	l.readable(column, raw)
	text := strings.Clone(raw)
	if len(l.texts) < 1<<16 {
		l.texts[text] = text
	}
	return text
}

// name is a text that must be there and is another one in each line.
func (l *line) name(column string) string {
	raw := l.raw(column)
	if raw == "" {
		l.fail(column, "is empty")
	}
	l.readable(column, raw)
	return strings.Clone(raw)
}

// readable says whether a text can be printed: it is in UTF-8, and no letter of it is for a terminal.
func (l *line) readable(column, text string) {
	for _, r := range text {
		switch {
		case r == utf8.RuneError && !utf8.ValidString(text):
			l.fail(column, "%q is not UTF-8", text)
			return
		case unicode.IsControl(r):
			l.fail(column, "%q has a control character", text)
			return
		}
	}
}

// mostSeconds is some 120 years: two times add up without overflow, in nanoseconds, too.
const mostSeconds = 4_000_000_000

// number is a field from 0 to most. Some tools write 12.0 for 12. An empty field is 0 unless it must be there.
func (l *line) number(column string, must bool, most int64) int64 {
	return l.between(column, must, 0, most)
}

func (l *line) between(column string, must bool, least, most int64) int64 {
	raw := l.raw(column)
	if raw == "" && !must {
		return 0
	}
	v, err := strconv.ParseInt(strings.TrimSuffix(raw, ".0"), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(raw, 64)
		if ferr != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			l.fail(column, "%q is not a number", raw)
			return 0
		}
		f = max(-1e18, min(1e18, f)) // beyond all bounds
		v = int64(math.Floor(f))     // -0.5 is below 0
	}
	if v < least || v > most {
		hint := ""
		if most == mostSeconds && v > most {
			hint = "; are times and durations in seconds?"
		}
		l.fail(column, "%s is not between %d and %d%s", raw, least, most, hint)
		return 0
	}
	return v
}

// cards is a number of whole cards.
func (l *line) cards(column string) int32 {
	raw := l.raw(column)
	if f, err := strconv.ParseFloat(raw, 64); err == nil && !math.IsNaN(f) && f != math.Trunc(f) {
		l.fail(column, "%s is not a whole number: parts of cards are not simulated", raw)
	}
	return int32(l.number(column, true, mostCards))
}

const (
	mostCards  = 1 << 20
	mostCPUs   = 1 << 24
	mostMemory = 1 << 40 // MiB
)

func readJob(l *line, j *Job) string {
	j.ID, j.User, j.Queue = l.name("job_id"), l.text("user"), l.text("queue")
	if j.Queue == "" {
		l.fail("queue", "is empty")
	}
	j.Submit = l.number("submit_s", true, mostSeconds)
	j.Duration = l.number("duration_s", true, mostSeconds)
	j.Cards = l.cards("gpus")
	j.CPU = 1000 * l.number("cpus", false, mostCPUs)
	j.Memory = l.number("memory_mib", false, mostMemory) << 20
	j.Priority = l.between("priority", false, math.MinInt32, math.MaxInt32)
	j.Limit = l.number("limit_s", false, mostSeconds)
	j.Outcome = l.outcome("status")
	return ""
}

func readOpenb(l *line, j *Job) string {
	j.ID, j.Queue = l.name("name"), l.text("qos")
	if j.Queue == "" {
		j.Queue = "default"
	}
	created, deleted := l.number("creation_time", true, mostSeconds), l.number("deletion_time", false, mostSeconds)
	if l.raw("deletion_time") == "" {
		return "no end"
	}
	if deleted < created {
		l.fail("deletion_time", "%d is before creation_time %d", deleted, created)
	}
	began := created
	_, scheduled := l.columns["scheduled_time"]
	if l.raw("scheduled_time") != "" {
		began = min(max(created, l.number("scheduled_time", true, mostSeconds)), deleted)
	}
	j.Submit, j.Duration = created, deleted-began
	j.Outcome = l.outcome("pod_phase")
	j.CPU, j.Memory = l.number("cpu_milli", false, 1000*mostCPUs), l.number("memory_mib", false, mostMemory)<<20
	j.Cards = l.cards("num_gpu")
	if share := l.number("gpu_milli", false, 1000); j.Cards > 0 && share < 1000 {
		return "asks for part of a card"
	}
	if scheduled && l.raw("scheduled_time") == "" {
		return "was never scheduled"
	}
	return ""
}
