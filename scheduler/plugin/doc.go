// Package plugin is the placement engine as a plugin of kube-scheduler: the same Shell that answers as
// an extender, asked in-process.
//
//	PreFilter   one question about all nodes; Filter looks the answer up
//	PostFilter  no pod is preempted while our cache is behind
//	PreScore    one question about the nodes that are left; Score looks the answer up
//	Reserve     reserves the cards, so that the next pod cannot get them; Unreserve releases them
//	Bind        one write with the cards in it
//
// Pods that request no cards are left to the other plugins.
//
// Words: docs/design/glossary.md.
package plugin
