package output

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Table is rows under headings.
type Table struct {
	Columns []Column
	Rows    [][]string
	// Indent is put before every line; Rule draws a line under the headings.
	Indent string
	Rule   bool
}

// Column of a table.
type Column struct {
	Name string
	// Wide columns are shown with -o wide only.
	Wide bool
	// Cut columns are shortened where the terminal is too narrow for all.
	Cut bool
	// Paint is the colour of a cell.
	Paint func(cell string) Colour
}

// Add appends a row; cells are printed as %v does.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.Rows = append(t.Rows, row)
}

// gap between columns, and the least width of a shortened column.
const (
	gap   = 2
	least = 8
)

// Print writes the table.
func (t *Table) Print(s Writer, wide bool) {
	var shown []int
	for i, c := range t.Columns {
		if wide || !c.Wide {
			shown = append(shown, i)
		}
	}
	width := t.widths(s, shown)
	line := func(cell func(column int) string, colour func(column int, text string) Colour) {
		var b strings.Builder
		b.WriteString(t.Indent)
		for n, i := range shown {
			text := shorten(cell(i), width[i])
			pad := ""
			if n < len(shown)-1 {
				pad = strings.Repeat(" ", width[i]-utf8.RuneCountInString(text)+gap)
			}
			b.WriteString(s.Paint(colour(i, text), text))
			b.WriteString(pad)
		}
		fmt.Fprintln(s, strings.TrimRight(b.String(), " "))
	}
	plain := func(int, string) Colour { return Plain }
	line(func(i int) string { return t.Columns[i].Name }, plain)
	if t.Rule {
		line(func(i int) string { return strings.Repeat("-", utf8.RuneCountInString(t.Columns[i].Name)) }, plain)
	}
	for _, row := range t.Rows {
		line(func(i int) string { return row[i] }, func(i int, text string) Colour {
			if paint := t.Columns[i].Paint; paint != nil {
				return paint(text)
			}
			return Plain
		})
	}
}

// widths of the columns; what is too much for the terminal is taken from the
// widest that may be cut.
func (t *Table) widths(s Writer, shown []int) []int {
	width := make([]int, len(t.Columns))
	total := len(t.Indent) + gap*(len(shown)-1)
	for _, i := range shown {
		width[i] = utf8.RuneCountInString(t.Columns[i].Name)
		for _, row := range t.Rows {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
		total += width[i]
	}
	for s.Width > 0 && total > s.Width {
		widest := -1
		for _, i := range shown {
			if t.Columns[i].Cut && width[i] > least && (widest < 0 || width[i] > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		width[widest]--
		total--
	}
	return width
}

func shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
