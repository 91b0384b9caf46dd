// Package managed decides which jobs are managed: those that name a queue, in a namespace that the
// configuration selects, unless one of their owners is queued in their place. Webhooks and
// controllers ask the same Filter, so that no job is suspended that nobody would start.
//
// Words: docs/design/glossary.md.
package managed
