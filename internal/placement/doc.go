// Package placement decides where pods go: which node, and which pieces of which cards.
//
// The engine is fed events (nodes with their cards, pods bound and gone) and answers questions.
// It has no clock, no goroutine, no client and no log; time is an argument. The same events give
// the same answers, whatever was asked in between.
//
//	e, _ := placement.New(placement.Options{})
//	e.Apply(placement.NodeChanged{Node: node})
//	e.Filter(&pod, names)            // which of these nodes can take the pod, and why not the others
//	e.Score(&pod, names)             // 0..10 each, as kube-scheduler's extenders answer
//	e.Assign(&pod, "node-1", until)  // choose the cards there and hold them until bound
//
// A gang is placed in a transaction, all of its pods or none:
//
//	txn := e.Begin()
//	answer := txn.Place(&gang)       // or Remove a pod first, to ask "what if"
//	txn.Commit(until)                // held until its pods are bound; or txn.Rollback()
//
// Pods of a job that asks the same share one shape. A shape keeps every node's score and a
// tournament over them, and re-scores only nodes that changed since it was last asked: a decision
// costs the changes, not the cluster. How nodes and cards are compared is in package policy.
//
// The engine is for one goroutine at a time.
package placement
