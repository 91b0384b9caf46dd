// Package cost runs jobs with deadlines on machines that clouds sell, minute by minute: spot prices and the times at which
// spot machines could be had are recorded ones, and where jobs go is decided by package cloud, or by a rule to compare it
// with.
//
//	series     Read: recorded prices and availability, as markets
//	jobs       Invented jobs, or those of a trace
//	run        Run: one rule over all jobs; what they cost, and which were late
//	rules      the rules to compare with
//	bound      Bound: what a job costs at least, for someone who knows the future
//	queue      RunQueue: a queue with quota in several markets, between which the admission engine chooses
//
// Machines are paid for from the order to the end, start-up included. A spot machine can be bought in minutes in which the
// series says so, and is lost in the first in which it does not; what the job had not saved is lost with it. A try to buy
// where there is nothing costs a minute and no money. A job that moves by choice goes on where it is until the other machines
// have started, and both are paid for. Machines on demand can always be had. Jobs do not take machines
// from each other: a series says whether one more could be had.
//
// Words: docs/design/glossary.md.
package cost
