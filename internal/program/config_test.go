package program

import (
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

func TestDecodeConfig(t *testing.T) {
	const head = "apiVersion: elasticai.io/v1alpha1\nkind: QueueConfiguration\n"
	for name, tc := range map[string]struct {
		file string
		want string // part of the error; empty means it loads
	}{
		"an empty file of the right kind":   {file: head},
		"a known field":                     {file: head + "webhook: {port: 1234}\n"},
		"an unknown field":                  {file: head + "webhoook: {}\n", want: `unknown field "webhoook": did you mean "webhook"?`},
		"an unknown nested field":           {file: head + "webhook: {prot: 1}\n", want: `unknown field "webhook.prot": did you mean "webhook.port"?`},
		"a field of the common part":        {file: head + "metrics: {bindAdress: x}\n", want: `did you mean "metrics.bindAddress"?`},
		"a field like no other":             {file: head + "zzzzzzzzzzzz: 1\n", want: `unknown field "zzzzzzzzzzzz"`},
		"the same field twice":              {file: head + "writers: 1\nwriters: 2\n", want: `"writers" already set in map`},
		"another kind":                      {file: "apiVersion: v1\nkind: Pod\n", want: `this program reads a "QueueConfiguration" of "elasticai.io/v1alpha1"`},
		"a value of the wrong type":         {file: head + "writers: many\n", want: "writers"},
		"two problems are both told":        {file: head + "writer: 1\nlogg: {}\n", want: `did you mean "log"?`},
		"a letter in the wrong case counts": {file: head + "Writers: 1\n", want: `did you mean "writers"?`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := v1alpha1.NewQueueConfiguration()
			err := decodeConfig([]byte(tc.file), cfg, nil)
			if tc.want == "" {
				if err != nil {
					t.Fatalf("unexpected error: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

func TestDecodeKeepsDefaults(t *testing.T) {
	cfg := v1alpha1.NewQueueConfiguration()
	file := "apiVersion: elasticai.io/v1alpha1\nkind: QueueConfiguration\nwebhook:\n  port: 1234\n"
	if err := decodeConfig([]byte(file), cfg, nil); err != nil {
		t.Fatal(err)
	}
	if cfg.Webhook.Port != 1234 || cfg.Writers != 16 || cfg.Webhook.CertDir == "" {
		t.Fatalf("the file must only change what it names: %+v", cfg)
	}
}
