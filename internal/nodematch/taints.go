package nodematch

// The effects that bind; PreferNoSchedule is a wish.
const (
	NoSchedule = "NoSchedule"
	NoExecute  = "NoExecute"
)

// Taint of a node. Pods without a matching toleration stay away.
type Taint struct{ Key, Value, Effect string }

// Toleration of taints. Operator is "Equal" (also when empty) or "Exists"; an empty Effect is all of them.
type Toleration struct{ Key, Operator, Value, Effect string }

// Binds says whether pods need a toleration for the taint.
func (t *Taint) Binds() bool { return t.Effect == NoSchedule || t.Effect == NoExecute }

// ToleratedBy says whether one of the tolerations matches the taint.
func (t *Taint) ToleratedBy(tolerations []Toleration) bool {
	for i := range tolerations {
		if tolerations[i].matches(t) {
			return true
		}
	}
	return false
}

func (o *Toleration) matches(t *Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect {
		return false
	}
	if o.Operator == "Exists" {
		return o.Key == "" || o.Key == t.Key
	}
	return o.Key == t.Key && o.Value == t.Value
}

// String prints a taint as kubectl does.
func (t *Taint) String() string {
	if t.Value == "" {
		return "{" + t.Key + ": " + t.Effect + "}"
	}
	return "{" + t.Key + ": " + t.Value + " " + t.Effect + "}"
}
