// Package topology sends the pods of admitted workloads to the places their
// topology assignment names. Such pods are born with a scheduling gate; it is
// taken off together with the node labels of a place that has room for one
// more. Pods that know their rank go to the place of that rank, so that
// neighbours in rank are neighbours in the topology.
package topology
