package gpushare

import (
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestPodOfACgroup(t *testing.T) {
	const uid = types.UID("0b5c6d1e-1111-2222-3333-444455556666")
	for _, tc := range []struct {
		name, cgroups string
		want          types.UID
	}{
		{"cgroupfs", "0::/kubepods/burstable/pod0b5c6d1e-1111-2222-3333-444455556666/4f2a\n", uid},
		{"guaranteed", "0::/kubepods/pod0b5c6d1e-1111-2222-3333-444455556666/4f2a\n", uid},
		{"systemd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b5c6d1e_1111_2222_3333_444455556666.slice/cri-containerd-4f2a.scope\n", uid},
		{"systemd, guaranteed", "0::/kubepods.slice/kubepods-pod0b5c6d1e_1111_2222_3333_444455556666.slice/crio-4f2a.scope\n", uid},
		{"seen from another cgroup", "0::/../../kubepods-besteffort-pod0b5c6d1e_1111_2222_3333_444455556666.slice/crio-4f2a.scope\n", uid},
		{"one for each controller", "4:memory:/kubepods/pod0b5c6d1e-1111-2222-3333-444455556666/4f2a\n3:cpuset:/\n0::/\n", uid},
		{"a forged one below its own", "0::/kubepods/podaaaa/4f2a/pod0b5c6d1e-1111-2222-3333-444455556666\n", "aaaa"},
		{"a forged one in another hierarchy", "4:memory:/kubepods/podaaaa/4f2a\n1:name=x:/pod0b5c6d1e-1111-2222-3333-444455556666\n", ""},
		{"a path with colons", "0::/a:b/pod0b5c6d1e-1111-2222-3333-444455556666/x\n", uid},
		{"none", "0::/system.slice/sshd.service\n", ""},
		{"nothing", "", ""},
	} {
		if got := podOf(tc.cgroups); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if ours, err := InPod(os.Getpid(), ""); err != nil || ours {
		t.Errorf("a process that is in no pod is of the pod without a UID: %v", err)
	}
}

func TestAgeOfAProcess(t *testing.T) {
	age, err := ageOf(os.Getpid())
	up, failed := uptime()
	if err != nil || failed != nil || age < 0 || age > up {
		t.Errorf("this test is %s old on a node that is up for %s: %v %v", age, up, err, failed)
	}
	if age > time.Hour {
		t.Errorf("it is %s old", age)
	}
	if _, err := ageOf(1 << 30); err == nil {
		t.Error("a process that is not there has an age")
	}
}
