package cloud

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Place is where a machine can be bought, and what kind: what is learned is learned of a place.
type Place struct {
	Cloud        string `json:"cloud"`
	Region       string `json:"region"`
	Zone         string `json:"zone,omitempty"`
	InstanceType string `json:"instanceType"`
	Spot         bool   `json:"spot,omitempty"`
}

func (p Place) String() string {
	where := p.Cloud + "/" + p.Region
	if p.Zone != "" {
		where += "/" + p.Zone
	}
	kind := " on demand"
	if p.Spot {
		kind = " spot"
	}
	return where + " " + p.InstanceType + kind
}

// Offer is a machine that is sold at a place.
type Offer struct {
	Place
	GPU       string  `json:"gpu,omitempty"`
	GPUs      float64 `json:"gpus,omitempty"`
	VCPUs     float64 `json:"vcpus,omitempty"`     // 0: the table does not say
	MemoryGiB float64 `json:"memoryGiB,omitempty"` // 0: the table does not say
	Price     float64 `json:"price"`               // US dollars an hour, for the machine
	// Machines is how many of it a job wants; 0: as many as the job says, as where all offers are of one size.
	Machines int `json:"-"`
	// Idle is how many of these are there already, without work. They need no start-up, whether or not the place sells more.
	Idle int `json:"-"`
	// Fixed is what each start there costs the job beside its machines, in US dollars: its input, where that lies elsewhere.
	Fixed float64 `json:"-"`
}

// Clouds are the names that a price table may use; a CloudOffer may have others count, too.
var Clouds = []string{
	"aws", "azure", "cudo", "do", "fluidstack", "gcp", "hyperbolic", "hyperstack", "lambda", "nebius", "oci", "paperspace",
	"primeintellect", "runpod", "shadeform", "vast", "verda", "yotta",
}

// The columns of a price table that are read; others may be there.
const (
	columnCloud    = "cloud"
	columnRegion   = "region"
	columnZone     = "zone"
	columnType     = "instance_type"
	columnGPU      = "gpu"
	columnGPUs     = "gpu_count"
	columnOnDemand = "price_usd_hour"
	columnSpot     = "spot_usd_hour"
	// These may be missing.
	columnVCPUs  = "vcpus"
	columnMemory = "memory_gib"
)

var tableColumns = []string{columnCloud, columnRegion, columnZone, columnType, columnGPU, columnGPUs, columnOnDemand, columnSpot}

// What a table may say: a machine that costs less or more than this an hour is a slip of the pen.
const (
	lowestPrice  = 0.0001
	highestPrice = 10_000
	mostGPUs     = 1024
	mostVCPUs    = 100_000
	mostMemory   = 1_000_000
	mostRows     = 200_000
	mostText     = 128
)

// RowError is what is wrong with one row of a price table. The row is left out.
type RowError struct {
	Line   int
	Column string // empty: the row as a whole
	Text   string
}

func (e RowError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Text)
	}
	return fmt.Sprintf("line %d, column %s: %s", e.Line, e.Column, e.Text)
}

// ReadPriceTable reads offers from CSV. Rows that cannot be used are named in bad and left out; err says that the table as
// a whole cannot be read. A row is one offer on demand, one on spot, or both. A cloud is one of Clouds, or of those named beside: any other
// name is a slip of the pen.
func ReadPriceTable(from io.Reader, clouds ...string) (offers []Offer, bad []RowError, err error) {
	r := csv.NewReader(from)
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	header, err := r.Read()
	if err != nil {
		return nil, nil, fmt.Errorf("line 1: %w", err)
	}
	t := table{columns: map[string]int{}, width: len(header), clouds: clouds, seen: map[Place]int{}}
	for i, name := range header {
		t.columns[strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))] = i
	}
	for _, name := range tableColumns {
		if _, ok := t.columns[name]; !ok {
			return nil, nil, fmt.Errorf("line 1: no column %s", name)
		}
	}
	for rows := 0; ; rows++ {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return t.offers, t.bad, nil
		}
		if rows == mostRows {
			return nil, nil, fmt.Errorf("more than %d rows", mostRows)
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			t.bad = append(t.bad, RowError{Line: parse.StartLine, Text: parse.Err.Error()})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		line, _ := r.FieldPos(0)
		t.add(line, fields)
	}
}

type table struct {
	columns map[string]int
	width   int
	clouds  []string // beside Clouds
	offers  []Offer
	bad     []RowError
	seen    map[Place]int // line
}

// add reads one row; nothing of a row that is wrong anywhere is used.
func (t *table) add(line int, fields []string) {
	if len(fields) != t.width {
		t.bad = append(t.bad, RowError{Line: line, Text: fmt.Sprintf("%d fields, the header has %d", len(fields), t.width)})
		return
	}
	row := row{table: t, line: line, fields: fields}
	o := Offer{Place: Place{
		Cloud: row.text(columnCloud, true), Region: row.text(columnRegion, true),
		Zone: row.text(columnZone, false), InstanceType: row.text(columnType, true),
	}, GPU: row.text(columnGPU, false)}
	if row.err == nil && !slices.Contains(Clouds, o.Cloud) && !slices.Contains(t.clouds, o.Cloud) {
		row.fail(columnCloud, fmt.Sprintf("unknown cloud %q", o.Cloud))
	}
	o.GPUs, _ = row.number(columnGPUs, 0, mostGPUs)
	o.VCPUs, _ = row.number(columnVCPUs, 0, mostVCPUs)
	o.MemoryGiB, _ = row.number(columnMemory, 0, mostMemory)
	onDemand, sold := row.number(columnOnDemand, lowestPrice, highestPrice)
	spot, spotSold := row.number(columnSpot, lowestPrice, highestPrice)
	if row.err == nil && !sold && !spotSold {
		row.fail(columnOnDemand, "no price, and no spot price either")
	}
	if earlier, twice := t.seen[o.Place]; row.err == nil && twice {
		row.fail("", fmt.Sprintf("%s was sold by line %d already", strings.TrimSuffix(o.String(), " on demand"), earlier))
	}
	if row.err != nil {
		t.bad = append(t.bad, *row.err)
		return
	}
	t.seen[o.Place] = line
	if sold {
		o.Price = onDemand
		t.offers = append(t.offers, o)
	}
	if spotSold {
		o.Spot, o.Price = true, spot
		t.offers = append(t.offers, o)
	}
}

// row of a table. The first problem is stored in err.
type row struct {
	*table
	line   int
	fields []string
	err    *RowError
}

func (r *row) fail(column, text string) {
	if r.err == nil {
		r.err = &RowError{Line: r.line, Column: column, Text: text}
	}
}

func (r *row) text(column string, must bool) string {
	text := strings.Clone(strings.TrimSpace(r.fields[r.columns[column]]))
	if must && text == "" {
		r.fail(column, "is empty")
	}
	if len(text) > mostText {
		r.fail(column, fmt.Sprintf("longer than %d bytes", mostText))
	}
	return text
}

// number is a field between two bounds; false where it is empty, or the table does not have the column.
func (r *row) number(column string, least, most float64) (float64, bool) {
	at, there := r.columns[column]
	if !there {
		return 0, false
	}
	text := strings.TrimSpace(r.fields[at])
	if text == "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		r.fail(column, fmt.Sprintf("%.40q is not a number", text))
		return 0, false
	}
	if !(v >= least && v <= most) { // so that NaN fails
		r.fail(column, fmt.Sprintf("%.40s is not between %v and %v", text, least, most))
		return 0, false
	}
	return v, true
}
