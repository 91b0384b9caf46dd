package cli

import "testing"

// Queues made, looked at, stopped and resumed; and what the doctor says of one
// without a LocalQueue.
func TestAdmin(t *testing.T) {
	ns := cluster.Namespace(t)
	t.Cleanup(func() {
		must(t, ns, "elastic-sandbox kubectl delete --ignore-not-found --wait=false clusterqueue/admin-a clusterqueue/admin-b resourceflavor/admin resourceflavor/nowhere")
	})
	session(t, ns, "admin.txt")
}
