package provisioning

import (
	"crypto/sha1" //nolint:gosec // a short, stable name, not a secret
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// requestName is that of a workload's request for a check. Each attempt is
// another request.
func requestName(workload string, check kueue.AdmissionCheckReference, attempt int32) string {
	return truncateName(fmt.Sprintf("%s-%s-%d", workload, check, attempt))
}

// templateName is that of a pod set's template in a request.
func templateName(request string, podSet kueue.PodSetReference) string {
	return truncateName(fmt.Sprintf("ppt-%s-%s", request, podSet))
}

// fit cuts a name that is too long for an object, and adds five letters that
// stand for all of it.
func truncateName(name string) string {
	const most = 253 - 6
	if len(name) <= most {
		return name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // see the import
	return name[:most] + "-" + hex.EncodeToString(sum[:])[:5]
}

// attemptOf is which attempt of a workload and check a request's name says it
// is; 0: none.
func attemptOf(name, workload string, check kueue.AdmissionCheckReference) int32 {
	rest, found := strings.CutPrefix(name, fmt.Sprintf("%s-%s-", workload, check))
	if n, err := strconv.ParseInt(rest, 10, 32); found && err == nil && n > 0 {
		return int32(n)
	}
	// One that was cut says it only by its last letters.
	const tries = 100
	for n := int32(1); n <= tries; n++ {
		full := requestName(workload, check, n)
		if full == name {
			return n
		}
	}
	return 0
}
