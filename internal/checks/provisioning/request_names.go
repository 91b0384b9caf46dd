package provisioning

import (
	"crypto/sha1" //nolint:gosec // a short, stable name, not a secret
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// requestName is the name of a workload's request for a check. Each attempt is another request.
func requestName(workload string, check kueue.AdmissionCheckReference, attempt int32) string {
	return truncateName(fmt.Sprintf("%s-%s-%d", workload, check, attempt))
}

// templateName is the name of a pod set's template in a request.
func templateName(request string, podSet kueue.PodSetReference) string {
	return truncateName(fmt.Sprintf("ppt-%s-%s", request, podSet))
}

// truncateName cuts a name that is too long for an object, and adds five letters of its hash.
func truncateName(name string) string {
	const most = 253 - 6
	if len(name) <= most {
		return name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // see the import
	return name[:most] + "-" + hex.EncodeToString(sum[:])[:5]
}

// attemptOf is the attempt of a workload and check that a request's name stands for; 0: none.
func attemptOf(name, workload string, check kueue.AdmissionCheckReference) int32 {
	rest, found := strings.CutPrefix(name, fmt.Sprintf("%s-%s-", workload, check))
	if n, err := strconv.ParseInt(rest, 10, 32); found && err == nil && n > 0 {
		return int32(n)
	}
	// A name that was cut has only the hash.
	const tries = 100
	for n := int32(1); n <= tries; n++ {
		full := requestName(workload, check, n)
		if full == name {
			return n
		}
	}
	return 0
}
