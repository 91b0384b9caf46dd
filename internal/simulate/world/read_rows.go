package world

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"strings"
)

// peekSeparator finds out from the header whether fields stand between commas or bars.
func peekSeparator(from io.Reader) (*bufio.Reader, rune, error) {
	buffered := withoutMark(from)
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

// withoutMark leaves out the mark of the encoding with which some programs begin files.
func withoutMark(from io.Reader) *bufio.Reader {
	const mark = "\ufeff"
	buffered := bufio.NewReaderSize(from, 1<<16)
	if start, _ := buffered.Peek(len(mark)); string(start) == mark {
		_, _ = buffered.Discard(len(mark)) // what was peeked is there
	}
	return buffered
}

// rows are the lines of a table: CSV, or as sacct -P writes them, with bars between fields that nobody quotes.
type rows struct {
	csv     *csv.Reader
	bars    *bufio.Reader
	number  int
	fields  []string
	columns int // how many there are, once that is known
	free    int // the column of a text in which bars may be; -1: none
}

func newRows(from *bufio.Reader, separator rune) *rows {
	if separator == '|' {
		return &rows{bars: from, free: -1}
	}
	r := csv.NewReader(from)
	r.Comma, r.ReuseRecord, r.FieldsPerRecord = separator, true, -1 // wrongNumber names the column
	return &rows{csv: r, free: -1}
}

// read the next line; the one after it takes its array.
func (r *rows) read() ([]string, error) {
	if r.csv != nil {
		return r.csv.Read()
	}
	for {
		text, err := r.bars.ReadString('\n')
		if text == "" {
			return nil, err
		}
		r.number++
		if text = strings.TrimRight(text, "\r\n"); text == "" {
			continue
		}
		r.fields = r.fields[:0]
		for field := range strings.SplitSeq(text, "|") {
			r.fields = append(r.fields, field)
		}
		if more := len(r.fields) - r.columns; r.free >= 0 && more > 0 {
			r.fields[r.free] = strings.Join(r.fields[r.free:r.free+more+1], "|")
			r.fields = append(r.fields[:r.free+1], r.fields[r.free+more+1:]...)
		}
		return r.fields, nil
	}
}

// line is the number of the one that was read last.
func (r *rows) line() int {
	if r.csv != nil {
		number, _ := r.csv.FieldPos(0)
		return number
	}
	return r.number
}

// columnName is a column's name in a header.
func columnName(text string) string { return strings.TrimSpace(text) }
