// Package placement decides where pods go: which node, and which pieces of which cards.
//
// The engine is fed events (nodes with their cards, pods bound and gone) and answers questions.
// It has no clock, no goroutine, no client and no log; time is an argument. The same events give
// the same answers, whatever questions came in between.
//
//	e, _ := placement.New(placement.Options{})
//	e.Apply(placement.NodeChanged{Node: node})
//	e.Filter(&pod, names)            // which of these nodes can take the pod, and why not the others
//	e.Score(&pod, names)             // 0..10 each, as kube-scheduler's extenders answer
//	e.Assign(&pod, "node-1", until)  // choose the cards there and reserve them until bound
//
// A gang is placed in a transaction, all of its pods or none:
//
//	txn := e.Begin()
//	answer := txn.Place(&gang)       // or Remove a pod first, to ask "what if"
//	txn.Commit(until)                // reserved until its pods are bound; or txn.Rollback()
//
// How it works: a node has holdings, one for each pod that has something of it, reserved or bound. Every
// change of a holding goes into a journal while a transaction is open, and Rollback undoes the journal
// backwards. What a gang reserves are placeholders, which its pods take one by one.
//
// Pods that request the same share one request shape. A shape has an index: every node's score, or why
// the node does not fit, and a tournament over the scores. Every changed node goes into one log, and the
// index scores only the nodes in the log since it was last used: a decision costs the changes, not the
// cluster. To score a node, the picker first chooses cards there; how nodes and cards are compared is in
// package policy. With a topology, the engine counts how many pods fit in each domain and picks domains
// before nodes.
//
// A Refusal says how many pods fit, which nodes refuse the next one and why, and which kinds of events
// could change the answer.
//
//	file                what is there
//	engine.go           the state: nodes, holdings, the log of changes
//	events.go           Apply
//	filter.go           Filter, Score, Best
//	assign.go           Assign, Release, Expire
//	transaction.go      Begin, Hold, Commit, Rollback
//	gang.go             Place
//	topology.go         domains and how pods are distributed over them; topology_balanced.go does so evenly
//	request_shape.go    requests, compiled; score_index.go is the index of a shape
//	node_state.go       what scores go by, as a hash: nodes that are alike are scored once
//	card_picker.go      which cards of a node
//	demand.go           what pods usually request, for policies that look ahead
//	refusal.go          reasons
//	defragment.go       moves after which a gang would fit
//
// The engine is for one goroutine at a time.
//
// Words: docs/design/glossary.md.
package placement
