// Package cloud decides where a job's machines are bought, and when: which offer of which cloud is cheapest for it now,
// whether waiting for spot pays, and when a deadline says to buy on demand. Plain values, the standard library, no clock.
//
//	offers, bad, err := cloud.ReadPriceTable(file)      // what is sold: a bad row is named, the others count
//	learned.StockOut(offer.Place, machines, now)        // what was seen, by all jobs
//	choice := cloud.Choose(job, offers, learned, now)   // Buy this offer, Stay, or Wait until then, and what that costs
//
// # How it decides
//
// Expected cost is machines × price × (run time + start-up + losses × (start-up + half a checkpoint interval)), and what
// waiting costs. That ranks offers (expected_cost.go), and other clusters that a job can be sent to (cluster_order.go). A
// deadline gives a job slack: time that it can waste and still finish on machines on demand, which can always be had.
// Waiting for spot, start-ups and lost work spend it. What the best use of slack costs from here on is a recursion over
// slack and run time left (deadline.go), with the rates at which spot machines were lost and came back (learned.go). The
// cheapest first step is the choice (choose.go).
//
// A job on demand goes back to spot machines when that pays. It runs on until they have started, and then moves: as it saves its work
// (choose.go), or by a stop, where nobody knows when that is (restart.go).
//
// No job is late by its own choice: spot machines are bought only while a loss at the worst moment leaves enough time to finish on
// demand. Those that run are kept until they are lost.
//
// All that a choice depends on is in its arguments, and all of that can be written down: a restart changes no choice.
//
// Words: docs/design/glossary.md. Design: docs/design/clouds.md.
package cloud
