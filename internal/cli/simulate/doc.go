// Package simulate is "elastic simulate": a trace of jobs run through the real engines, on a cluster that is there, that
// is described in files, or that is only thought of.
//
//	commands.go   the commands and their flags
//	inputs.go     trace and cluster, from whatever was given
//	tables.go     what came of it, for people
//	timeline.go   what happened to each job, as CSV
//	cost.go       what machines of clouds would cost
//
// Words: docs/design/glossary.md.
package simulate
