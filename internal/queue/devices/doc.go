// Package devices counts what pods get by ResourceClaims in the resources that quota has: Kueue's DRA
// integration.
//
// The configuration maps DeviceClasses to such resources. A claim that a pod has by a
// ResourceClaimTemplate counts once for each pod: as a number of devices, or, where the mapping has
// sources, as what the devices take of a counter that they share or of their own capacity. An
// extended resource that a DeviceClass serves counts as that class does.
//
// Selectors are evaluated once for each version of a ResourceSlice, and their cost is limited: a
// Search that takes too long for the loop runs in the background, step by step, and the workload
// waits until it is done.
//
// A Counter has the templates, classes and devices there are. What cannot be counted is refused with
// Kueue's messages; when something changes that may allow it to be counted, Changed says which
// workloads that affects.
//
// Words: docs/design/glossary.md.
package devices
