package quota

import "slices"

// Amount is a quantity of one flavor-resource.
type Amount struct {
	FR int32
	V  int64
}

// AmountOf is the quantity of fr in a list; 0 if it is not there.
func AmountOf(list []Amount, fr int32) int64 {
	for _, u := range list {
		if u.FR == fr {
			return u.V
		}
	}
	return 0
}

// AddAmount adds to a list that is sorted by flavor-resource.
func AddAmount(list []Amount, fr int32, v int64) []Amount {
	i := len(list)
	for i > 0 && list[i-1].FR >= fr {
		i--
	}
	if i < len(list) && list[i].FR == fr {
		list[i].V += v
		return list
	}
	return slices.Insert(list, i, Amount{fr, v})
}
