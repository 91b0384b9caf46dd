package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// TracePod is a pod of a trace with the times the trace gives it, in seconds from its start.
type TracePod struct {
	placement.Pod
	Created, Deleted int64
	// Demand is what it asks of cards in all, in thousandths of a card.
	Demand int64
}

// ReadNodes reads a node list with the columns sn, cpu_milli, memory_mib, gpu and model.
func ReadNodes(path string) ([]placement.Node, error) {
	var nodes []placement.Node
	err := readCSV(path, func(r row) error {
		n := placement.Node{
			Name:      r.text("sn"),
			Labels:    map[string]string{"kubernetes.io/hostname": r.text("sn")},
			Resources: map[string]int64{"cpu": r.number("cpu_milli"), "memory": r.number("memory_mib") << 20},
		}
		for i := range r.number("gpu") {
			n.Cards = append(n.Cards, placement.Card{Index: int(i), Model: r.text("model")})
		}
		nodes = append(nodes, n)
		return r.err()
	})
	return nodes, err
}

// ReadPods reads a pod list with the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli and,
// where there are any, gpu_spec (models that will do, with bars between), creation_time and deletion_time.
func ReadPods(path string) ([]TracePod, error) {
	var pods []TracePod
	err := readCSV(path, func(r row) error {
		p := TracePod{Pod: placement.Pod{
			Key:       r.text("name"),
			Resources: map[string]int64{"cpu": r.number("cpu_milli"), "memory": r.number("memory_mib") << 20},
		}}
		if count := r.number("num_gpu"); count > 0 {
			c := placement.CardRequest{Count: int(count), Core: r.number("gpu_milli")}
			c.Exclusive = c.Core == policy.Whole
			if spec := r.optional("gpu_spec"); spec != "" {
				c.Models = strings.Split(spec, "|")
			}
			p.Containers = []placement.Container{{Name: "main", Cards: c}}
			p.Demand = count * c.Core
		}
		p.Created, p.Deleted = r.optionalNumber("creation_time"), r.optionalNumber("deletion_time")
		pods = append(pods, p)
		return r.err()
	})
	return pods, err
}

// row of a CSV file, by column name. The first problem is stored for err.
type row struct {
	columns map[string]int
	fields  []string
	problem *error
}

func (r row) text(column string) string {
	i, ok := r.columns[column]
	if !ok {
		r.fail(fmt.Errorf("no column %s", column))
		return ""
	}
	return r.fields[i]
}

func (r row) number(column string) int64 {
	text := r.text(column)
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		r.fail(fmt.Errorf("column %s: %q is not a number from 0", column, text))
	}
	return v
}

func (r row) optional(column string) string {
	if _, ok := r.columns[column]; !ok {
		return ""
	}
	return r.text(column)
}

// optionalNumber also takes "1234.0": some traces were written by tools that like it.
func (r row) optionalNumber(column string) int64 {
	text, _, _ := strings.Cut(r.optional(column), ".")
	v, _ := strconv.ParseInt(text, 10, 64)
	return v
}

func (r row) fail(err error) {
	if *r.problem == nil {
		*r.problem = err
	}
}

func (r row) err() error { return *r.problem }

func readCSV(path string, each func(row) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	reader := csv.NewReader(f)
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	columns := make(map[string]int, len(header))
	for i, name := range header {
		columns[strings.TrimSpace(name)] = i
	}
	for line := 2; ; line++ {
		fields, err := reader.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		var problem error
		if err := each(row{columns, fields, &problem}); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, line, err)
		}
	}
}
