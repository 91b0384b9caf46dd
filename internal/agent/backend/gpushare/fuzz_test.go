package gpushare

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// FuzzAnswer of a tenant's process: what is believed of it can be, and what is said of the rest is short and readable.
func FuzzAnswer(f *testing.F) {
	for _, line := range []string{
		"", "\n", "{}", "null", "[]", `{"ok":true,"protocol":1,"pid":7}`, `{"ok":false,"reason":"it has a pool"}`, `{"ok":true,"bytes":500,"copy_s":0.1,"total_s":0.2}`,
		`{"ok":true,"protocol":1,"pid":7,"container":"u/main","out":true,"devices":[{"uuid":"GPU-0","limit":1000,"used":600,"held":500,"overhead":100,"swapped":0,"compute":30.00,"busy_ns":2000000000,"waited_ns":500000000}]}`,
		`{"ok":true,"protocol":1,"devices":[{"busy_ns":-1}]}`, `{"ok":true,"protocol":1,"devices":[{"busy_ns":18446744073709551615}]}`,
		`{"ok":true,"protocol":1,"Socket":"/etc/shadow","PID":1,"Age":9223372036854775807,"Silent":true}`, `{"ok":true,"protocol":1,"devices":[{},{}]}`,
		`{"reason":"\u001b[2J\n"}`, strings.Repeat("[", 10000),
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		d := &description{}
		if err := decode(line, d); err != nil {
			if len(err.Error()) > 2*maxWords+600 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("it says %q", err)
			}
			return
		}
		if len(d.Devices) > maxDevices || d.PID != 0 || d.Age != 0 || d.Silent {
			t.Errorf("believed: %+v", d)
		}
		for _, c := range d.Devices {
			if min(c.Limit, c.Used, c.Held, c.Overhead, c.Swapped, c.BusyNS, c.WaitedNS) < 0 {
				t.Errorf("believed: %+v", c)
			}
		}
	})
}

// FuzzCgroups of a process: a container's own cgroups, below its pod's, never make it another pod's.
func FuzzCgroups(f *testing.F) {
	for _, below := range []string{"", "4f2a", "4f2a/podvictim", "kubepods-podvictim.slice", "x:y/podvictim", "podvictim\n0::/podvictim"} {
		f.Add(below)
	}
	f.Fuzz(func(t *testing.T, below string) {
		below = strings.ReplaceAll(below, "\n", `\012`) // as the kernel writes it
		for _, pod := range []string{"/kubepods/burstable/podmine/", "/kubepods.slice/kubepods-podmine.slice/"} {
			if got := podOf("0::" + pod + below + "\n"); got != "mine" {
				t.Errorf("below %s, %q is of pod %q", pod, below, got)
			}
		}
	})
}

// FuzzLimits writes any share: what the library reads has one line for each thing that was meant.
func FuzzLimits(f *testing.F) {
	f.Add("uid", "main", "GPU-0", 30.0, int64(1000), "on")
	f.Add("uid\nswap on", "main", "GPU-0", 30.0, int64(1000), "off")
	f.Add("uid", "main\ndevice GPU-1 memory 1 compute 100", "GPU-0", 30.0, int64(1000), "")
	f.Add("uid", "main", "GPU-0\tmemory", 30.0, int64(1000), "perhaps")
	f.Add("uid", "main", "GPU-0", math.NaN(), int64(-1), "")
	f.Add("uid", "main", "GPU-0", math.Inf(1), int64(math.MaxInt64), "")
	f.Add("", "", "", 0.0, int64(0), "")
	f.Add("uid", "main", "GPU-0", 30.0, int64(1000), "low")
	f.Add("uid", "main", "GPU-0", 30.0, int64(1000), "space")
	grammar := regexp.MustCompile(`^elastic-gpu 1\ncontainer [!-~]+\n((swap|oversubscribe) (on|off)\n)*device [!-~]+ memory \d+ compute \d+\.\d\d lend (on|off)( latency (low|throughput))?( sharing space)?\n$`)
	f.Fuzz(func(t *testing.T, uid, container, uuid string, percent float64, memory int64, word string) {
		s := &share.Share{UID: types.UID(uid), Container: container, Cards: []share.Card{{Card: discovery.Card{UUID: uuid}, Percent: percent, MemoryMB: memory}}}
		s.Parameters = map[string]string{"swap": word, "lend": word, "oversubscribe": word, "latency": word, "sharing": word}
		if text, err := Limits(s); err == nil && !grammar.Match(text) {
			t.Errorf("limits %q", text)
		}
	})
}
