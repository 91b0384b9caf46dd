// Package volcano keeps the types of Volcano's Job in this module's list.
package volcano

import _ "volcano.sh/apis/pkg/apis/batch/v1alpha1" // what controller-gen reads
