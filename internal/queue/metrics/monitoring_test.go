package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var metricName = regexp.MustCompile(`\b(?:kueue|elastic)_[a-z_]+`)

// Alerts and dashboard name metrics that exist, with labels that these have.
func TestMonitoringNamesMetricsThatExist(t *testing.T) {
	known := map[string]Definition{}
	for _, d := range Definitions() {
		known[d.Name] = d
		if d.Type == "histogram" {
			known[d.Name+"_bucket"], known[d.Name+"_sum"], known[d.Name+"_count"] = d, d, d
		}
	}
	total := 0
	for file, expressions := range map[string][]string{"alerts.yaml": alertExpressions(t), "dashboard.json": panelExpressions(t)} {
		for _, expression := range expressions {
			for _, name := range metricName.FindAllString(expression, -1) {
				total++
				if _, there := known[name]; !there {
					t.Errorf("%s: there is no metric %s (in %s)", file, name, expression)
				}
			}
			for _, use := range regexp.MustCompile(`((?:kueue|elastic)_[a-z_]+)\{([a-z_]+)=`).FindAllStringSubmatch(expression, -1) {
				if !strings.Contains(strings.Join(known[use[1]].Labels, " "), use[2]) {
					t.Errorf("%s: %s has no label %s", file, use[1], use[2])
				}
			}
		}
	}
	if total < 20 {
		t.Errorf("only %d uses of metrics found: the reading is broken", total)
	}
}

type rules struct {
	Spec struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
}

func readRules(t *testing.T) rules {
	t.Helper()
	data, err := os.ReadFile("../../../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func alertExpressions(t *testing.T) (out []string) {
	for _, group := range readRules(t).Spec.Groups {
		for _, rule := range group.Rules {
			out = append(out, rule.Expr)
		}
	}
	return out
}

func panelExpressions(t *testing.T) (out []string) {
	t.Helper()
	data, err := os.ReadFile("../../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			out = append(out, target.Expr)
		}
	}
	return out
}

// Every alert is explained.
func TestAlertsAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range readRules(t).Spec.Groups {
		for _, rule := range group.Rules {
			if !strings.Contains(string(page), "| `"+rule.Alert+"` |") {
				t.Errorf("docs/operations/alerts.md does not explain %s", rule.Alert)
			}
		}
	}
}
