// Package web serves the page: the cluster at a glance, and the reason why a job waits. The server
// has no rights of its own; every read and write is made as the person who looks.
//
// A session is one set of rights, with one State: small records of nodes, queues and workloads that
// watches maintain and that the page follows by server-sent events. Questions about one job, and
// changes, go through the same code as the commands.
//
// Design: docs/design/web.md. Words: docs/design/glossary.md.
package web
