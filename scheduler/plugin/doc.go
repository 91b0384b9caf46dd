// Package plugin is the placement engine as a plugin of kube-scheduler: the same Shell that answers as
// an extender, asked in-process.
//
//	PreFilter   one question about all nodes; Filter looks the answer up
//	PostFilter  nobody is preempted while we are behind the news
//	PreScore    one question about the nodes that are left; Score looks the answer up
//	Reserve     holds the cards, so that the next pod cannot get them; Unreserve gives them back
//	Bind        one write with the cards in it
//
// Pods that ask for no cards are none of its business.
package plugin
