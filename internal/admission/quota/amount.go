package quota

import "slices"

// Amount is a quantity of one flavor-resource.
type Amount struct {
	FR int32
	V  int64
}

// Sum adds quantities; it saturates at Unlimited.
func Sum(a, b int64) int64 { return min(min(a, Unlimited)+min(b, Unlimited), Unlimited) }

// Times is what n pods request that request v each; it saturates at Unlimited, and less than nothing is nothing.
func Times(v int64, n int32) int64 {
	switch {
	case v <= 0 || n <= 0:
		return 0
	case v > Unlimited/int64(n):
		return Unlimited
	}
	return v * int64(n)
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
		list[i].V = Sum(list[i].V, v)
		return list
	}
	return slices.Insert(list, i, Amount{fr, v})
}
