// Package devices counts what pods get by ResourceClaims in the resources that
// quota knows: Kueue's DRA integration.
//
// The configuration maps DeviceClasses to such resources. A claim that a pod
// has by a ResourceClaimTemplate counts once for each pod: as a number of
// devices, or, where the mapping has sources, as what they take of a counter
// that devices share or of a capacity that devices divide. An extended resource
// that a DeviceClass stands behind counts as that class does.
//
// Selectors are evaluated once for each ResourceSlice as it is. Their cost is
// counted: a Search that takes longer than a moment is handed to others, who
// take it on step by step, and until then the workload waits.
//
// A Book keeps the templates, classes and devices there are. What cannot be
// counted is refused in Kueue's words; when something comes or changes that may
// let it be counted, News names whom that concerns.
package devices
