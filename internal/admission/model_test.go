package admission

import "fmt"

// model is the quota tree written the slow, obvious way: nothing is stored, all
// is computed from the objects each time it is asked for.
type model struct {
	s     *shell
	extra map[string]map[[2]string]int64 // queue: usage admitted since
}

func newModel(s *shell) *model {
	return &model{s: s, extra: map[string]map[[2]string]int64{}}
}

// used is what workloads use of a queue's flavor and resource.
func (m *model) used(queue, flavor, res string) int64 {
	sum := m.extra[queue][[2]string{flavor, res}]
	for _, w := range m.s.workloads {
		if w.Admission != nil && w.Admission.Queue == queue && m.before(w) {
			sum += usedBy(w, flavor, res)
		}
	}
	return sum
}

// before: the model stands for the time it was made; admit adds what comes later.
func (m *model) before(w Workload) bool {
	_, later := m.extra["admitted "+w.Name]
	return !later
}

func usedBy(w Workload, flavor, res string) int64 {
	sum := int64(0)
	for _, ps := range w.Admission.PodSets {
		if ps.Flavors[res] != flavor {
			continue
		}
		for _, spec := range w.PodSets {
			if spec.Name == ps.Name {
				sum += int64(min(ps.Count, spec.Left())) * spec.Requests[res]
			}
		}
	}
	return sum
}

func (m *model) quotas(groups []ResourceGroup, flavor, res string) Quota {
	for _, g := range groups {
		for _, f := range g.Flavors {
			if f.Flavor == flavor {
				return f.Quotas[res]
			}
		}
	}
	return Quota{}
}

// A node is "q:name" or "c:name".
func (m *model) parent(n string) string {
	p := m.s.cohorts[n[2:]].Parent
	if n[0] == 'q' {
		p = m.s.queues[n[2:]].Cohort
	}
	if p == "" {
		return ""
	}
	return "c:" + p
}

func (m *model) children(n string) []string {
	var out []string
	for q := range m.s.queues {
		if m.parent("q:"+q) == n {
			out = append(out, "q:"+q)
		}
	}
	for c := range m.s.cohorts {
		if m.parent("c:"+c) == n {
			out = append(out, "c:"+c)
		}
	}
	return out
}

func (m *model) quota(n, flavor, res string) Quota {
	if n[0] == 'q' {
		return m.quotas(m.s.queues[n[2:]].Groups, flavor, res)
	}
	return m.quotas(m.s.cohorts[n[2:]].Groups, flavor, res)
}

func (m *model) subtree(n, f, r string) int64 {
	sum := m.quota(n, f, r).Nominal
	for _, ch := range m.children(n) {
		sum += m.subtree(ch, f, r) - m.guaranteed(ch, f, r)
	}
	return sum
}

func (m *model) guaranteed(n, f, r string) int64 {
	if l := m.quota(n, f, r).LendingLimit; l != nil {
		return max(0, m.subtree(n, f, r)-*l)
	}
	return 0
}

func (m *model) usage(n, f, r string) int64 {
	if n[0] == 'q' {
		return m.used(n[2:], f, r)
	}
	sum := int64(0)
	for _, ch := range m.children(n) {
		sum += max(0, m.usage(ch, f, r)-m.guaranteed(ch, f, r))
	}
	return sum
}

func (m *model) available(n, f, r string) int64 {
	sub, use := m.subtree(n, f, r), m.usage(n, f, r)
	p := m.parent(n)
	if p == "" {
		return sub - use
	}
	above := m.available(p, f, r)
	g := m.guaranteed(n, f, r)
	if b := m.quota(n, f, r).BorrowingLimit; b != nil {
		above = min(above, (sub-g)-max(0, use-g)+*b)
	}
	return max(0, g-use) + above
}

// admit checks an admission against the tree and counts it.
func (m *model) admit(a Admit) string {
	q := "q:" + a.Admission.Queue
	w := m.s.workloads[a.Workload]
	m.extra["admitted "+w.Name] = map[[2]string]int64{}
	total := map[[2]string]int64{}
	for i, ps := range a.Admission.PodSets {
		spec := w.PodSets[i]
		if left := spec.Count - spec.Reclaimable; ps.Count > left || ps.Count < left && (spec.MinCount == 0 || ps.Count < spec.MinCount) {
			return fmt.Sprintf("%d of %d pods", ps.Count, left)
		}
		for r, f := range ps.Flavors {
			total[[2]string{f, r}] += int64(ps.Count) * spec.Requests[r]
		}
	}
	for fr, v := range total {
		if free := m.available(q, fr[0], fr[1]); v > free {
			return fmt.Sprintf("takes %d of %v, %d are free", v, fr, free)
		}
		use := m.extra[a.Admission.Queue]
		if use == nil {
			use = map[[2]string]int64{}
			m.extra[a.Admission.Queue] = use
		}
		use[fr] += v
	}
	return ""
}
