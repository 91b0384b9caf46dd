package cli

import "testing"

// A job, another that waits for it, one stopped for the other, and the end.
func TestJobs(t *testing.T) {
	ns := cluster.Namespace(t)
	queues(t, ns, ns, "8")
	session(t, ns, "jobs.txt")
}

func TestRun(t *testing.T) {
	ns := cluster.Namespace(t)
	queues(t, ns, ns, "8")
	session(t, ns, "run.txt")
}
