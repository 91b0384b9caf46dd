// Command queue runs Kueue's performance harness on Kueue and on Elastic, one
// after the other on one machine, and compares what they cost.
//
// Each side gets a control plane of its own (Elastic's sandbox, without nodes)
// with Kueue's CRDs. The harness's runner makes cohorts, queues and workloads,
// ends a workload when its time is over, clears the reservation of one that was
// evicted, and stops when nothing is pending. The side's CPU time comes from the
// kernel, its requests from client-go's own counter, which both programs serve.
//
// Kueue is the harness's minimalkueue, as it is: its core controllers and its
// scheduler, no webhooks, no job controllers, 50 requests a second for each kind
// of object. Elastic is the whole elastic-queue, with the same limit, and once
// more without. At the end a plain client makes the writes that the work cannot
// do without, on a control plane of its own, as fast as they go: the floor.
package main
