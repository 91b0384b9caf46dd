// Package simulate drives the real engines from traces and returns figures. It has a clock and an
// event queue of its own and no other stand-in: what it measures is the code that runs in a cluster.
//
// Placement replays the published experiment on the openb traces (Weng et al., "Beware of
// Fragmentation", USENIX ATC 2023): arrivals only, until 130 percent of the cards have been
// requested. Replay runs a trace in its own time, with departures and waiting. Write… functions are the
// commands of the CLI.
//
// Words: docs/design/glossary.md.
package simulate
