package webhooks

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func TestAfterIsValidated(t *testing.T) {
	const job = `{apiVersion: batch/v1, kind: Job, metadata: {name: train, namespace: ns, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {elasticai.io/after: %q}}, spec: {suspend: true, template: {spec: {containers: [{name: c}], restartPolicy: Never}}}}`
	for after, want := range map[string]string{
		"":                                   "",
		"ok job/prepare, any job/data/clean": "",
		"notok workload/job-prepare-1a2b3":   "",
		"any pytorchjob/train":               "",
		"ok PyTorchJob/a":                    "",
		"prepare":                            `"prepare" is not of the form "ok job/prepare"`,
		"job/prepare":                        `"job/prepare" is not of the form "ok job/prepare"`,
		"after job/prepare":                  `"after job/prepare" begins with none of ok, notok, any`,
		"ok job/a,":                          `"" is not of the form "ok job/prepare"`,
		"ok jbo/a":                           `"ok jbo/a": no kind of jobs in this cluster is called jbo`,
		"ok prepare":                         `"ok prepare" names no job as in job/prepare, or job/data/prepare in namespace data`,
		"ok job/Data/x":                      `"ok job/Data/x" has no namespace between kind and name`,
		"ok job/Prepare":                     `"ok job/Prepare" has no name of a job`,
		"ok job/train":                       `"ok job/train" is the job itself`,
		"ok job/ns/train":                    `"ok job/train" is the job itself`,
		"ok job/data/train":                  "",
		strings.Repeat("ok job/a,", 1000) + "ok job/b":           "1001 jobs are more than 1000",
		"ok job/" + strings.Repeat("a", 40000):                   "40007 bytes are more than 32768",
		"ok job/" + strings.Repeat("x", 300):                     "…\" has no name of a job",
		strings.Repeat("ok job/a, ", 998) + "any job/b,ok job/c": "",
	} {
		h := handler(t, nil)
		raw := fmt.Sprintf(job, after)
		got := h.Handle(context.Background(), request(t, "", raw))
		message := ""
		if got.Result != nil {
			message = got.Result.Message
		}
		if got.Allowed != (want == "") || !strings.Contains(message, want) {
			t.Errorf("%.60q: allowed is %v: %s", after, got.Allowed, message)
		}
	}
}
