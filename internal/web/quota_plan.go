package web

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
)

// quotaPlan asks the queue what other quotas would change, as the person. Nothing is written.
func (s *Server) quotaPlan(w http.ResponseWriter, r *http.Request, p person) {
	const most = 256 << 10
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	plan := &v1alpha1.QuotaPlan{}
	if err := readBody(w, r, most, &plan.Spec); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	plan.APIVersion, plan.Kind = v1alpha1.Group+"/"+v1alpha1.Version, "QuotaPlan"
	data, err := p.client.Core.CoreV1().RESTClient().Post().AbsPath("/apis", v1alpha1.Group, v1alpha1.Version, v1alpha1.QuotaPlans).
		SetHeader("Content-Type", "application/json").Body(encode(plan)).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, plan)
	}
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	reply(w, http.StatusOK, plan.Status)
}
