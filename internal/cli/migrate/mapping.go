package migrate

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// rule sends jobs to a LocalQueue. The form is that of Kueue's importer.
type rule struct {
	Match struct {
		PriorityClassName string            `json:"priorityClassName"`
		Labels            map[string]string `json:"labels"`
	} `json:"match"`
	ToLocalQueue string `json:"toLocalQueue"`
	Skip         bool   `json:"skip"`
}

// mapping is what the flags say about which job goes to which queue.
type mapping struct {
	queue, label, file string
	values             []string

	rules []rule
}

// read makes rules of the flags; the first that matches a job counts.
func (m *mapping) read() error {
	if m.file != "" {
		data, err := os.ReadFile(m.file)
		if err != nil {
			return err
		}
		if err := yaml.UnmarshalStrict(data, &m.rules); err != nil {
			return fmt.Errorf("%s: %w", m.file, err)
		}
	}
	if (m.label == "") != (len(m.values) == 0) {
		return errors.New("--queue-label and --map go together: --queue-label team --map nlp=main")
	}
	for _, pair := range m.values {
		value, queue, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("--map %q has no '=': write VALUE=QUEUE", pair)
		}
		r := rule{ToLocalQueue: queue}
		r.Match.Labels = map[string]string{m.label: value}
		m.rules = append(m.rules, r)
	}
	if m.queue != "" {
		m.rules = append(m.rules, rule{ToLocalQueue: m.queue})
	}
	if len(m.rules) == 0 {
		return errors.New("say which queue: --queue NAME for all, --queue-label with --map, or --mapping-file")
	}
	for i, r := range m.rules {
		if (r.ToLocalQueue == "") != r.Skip {
			return fmt.Errorf("rule %d: it needs either toLocalQueue or skip", i+1)
		}
	}
	return nil
}

// find is the rule for a job, nil where there is none.
func (m *mapping) find(labels map[string]string, priorityClass string) *rule {
	for i := range m.rules {
		match := m.rules[i].Match
		if match.PriorityClassName != "" && match.PriorityClassName != priorityClass {
			continue
		}
		all := true
		for key, value := range match.Labels {
			all = all && labels[key] == value
		}
		if all {
			return &m.rules[i]
		}
	}
	return nil
}
