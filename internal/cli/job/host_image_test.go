package job

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// onHost is a job on the machine's root, written from flags.
func onHost(t *testing.T, flags ...string) (*submission, error) {
	t.Helper()
	f, s := formNamed("job"), &submission{}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.addFlags(f, set)
	if err := set.Parse(append(flags, "--image", "host")); err != nil {
		t.Fatal(err)
	}
	return s, s.read(f, []string{"python", "train.py"})
}

// Its containers have the person's rights and no others, and of the machine nothing that can be written but what is theirs.
func TestHostImageHasThePersonsRights(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Chown(dir, 4021, 4021); err != nil {
		t.Skip("it takes root to give a folder away: ", err)
	}
	t.Setenv("LD_LIBRARY_PATH", "/opt/lib")
	s, err := onHost(t, "--user", "4021", "--env", "LANG=C")
	if err != nil {
		t.Fatal(err)
	}
	if s.name == "" || s.queue != "main" || s.workingDir != dir {
		t.Errorf("name %q queue %q folder %q", s.name, s.queue, s.workingDir)
	}
	s.host.node, s.host.dir, s.host.folders = "real", "/x/root", []string{"etc", "usr"}
	f := formNamed("job")
	pod := s.template(f, &f.roles[0])["spec"].(map[string]any)
	container := pod["containers"].([]any)[0].(map[string]any)
	security := container["securityContext"].(map[string]any)
	if security["runAsUser"] != int64(4021) || security["allowPrivilegeEscalation"] != false || security["readOnlyRootFilesystem"] != true {
		t.Errorf("%v", security)
	}
	if pod["automountServiceAccountToken"] != false || pod["hostPID"] != nil {
		t.Errorf("%v", pod)
	}
	var writable []string
	for _, m := range container["volumeMounts"].([]any) {
		if mount := m.(map[string]any); mount["readOnly"] != true {
			writable = append(writable, mount["mountPath"].(string))
		}
	}
	if !slices.Equal(writable, []string{"/tmp", dir}) {
		t.Errorf("writable: %v", writable)
	}
	var env []string
	for _, e := range container["env"].([]any) {
		v := e.(map[string]any)
		env = append(env, v["name"].(string)+"="+v["value"].(string))
	}
	for _, want := range []string{"LANG=C", "LD_LIBRARY_PATH=/opt/lib", "HOME=/tmp", "USER=4021"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %v", want, env)
		}
	}
	if n := strings.Count(strings.Join(env, " "), "LANG="); n != 1 {
		t.Errorf("LANG is there %d times", n)
	}
}

func TestRootsJobsDoNotRunOnTheMachinesRoot(t *testing.T) {
	if _, err := onHost(t, "--user", "0"); err == nil || !strings.Contains(err.Error(), "--user") {
		t.Errorf("%v", err)
	}
	if _, err := onHost(t, "--user", "nobody-has-this-name"); err == nil {
		t.Error("a person who is not there")
	}
}
