package budget

import (
	"cmp"
	"slices"
)

// UserUsed is an amount of a resource that a user's jobs had, times seconds. It is beside the sums that budgets are reckoned with, so
// that who has many names makes those no larger.
type UserUsed struct {
	User        string `json:"user"`
	Resource    string `json:"resource"`
	UnitSeconds int64  `json:"unitSeconds"`
}

const (
	// OtherUsers is the name for all users of a period beyond the first mostUsers.
	OtherUsers = "(others)"
	mostUsers  = 100
	// mostUserLines is how many lines of users an account has at most: beyond that those of the earliest periods go.
	mostUserLines = 2000
)

// addUserRun adds what a run used within a period to what its user has.
func addUserRun(users []UserUsed, r *Run, w Window) []UserUsed {
	if r.User == "" {
		return users
	}
	user := r.User
	if names := userNames(users); len(names) >= mostUsers && !slices.Contains(names, user) {
		user = OtherUsers
	}
	for _, u := range addRun(nil, r, w) {
		users = addUser(users, UserUsed{User: user, Resource: u.Resource, UnitSeconds: u.UnitSeconds})
	}
	return users
}

// userNames are the users of a list that is in order.
func userNames(users []UserUsed) (names []string) {
	for i := range users {
		if i == 0 || users[i].User != users[i-1].User {
			names = append(names, users[i].User)
		}
	}
	return names
}

// inOrder is by user, then by resource.
func inOrder(a, b UserUsed) int {
	return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Resource, b.Resource))
}

// addUser adds to a list that is in order.
func addUser(users []UserUsed, u UserUsed) []UserUsed {
	if u.UnitSeconds <= 0 || u.User == "" {
		return users
	}
	i, found := slices.BinarySearchFunc(users, u, inOrder)
	if !found {
		return slices.Insert(users, i, u)
	}
	users[i].UnitSeconds = Plus(users[i].UnitSeconds, u.UnitSeconds)
	return users
}

// trimUsers lets go of the users of the earliest periods until the others are few enough. The latest stays.
func (a *Account) trimUsers() {
	lines, order := 0, make([]*Sum, 0, len(a.Sums))
	for i := range a.Sums {
		lines, order = lines+len(a.Sums[i].Users), append(order, &a.Sums[i])
	}
	slices.SortStableFunc(order, func(x, y *Sum) int { return x.Until.Compare(y.Until) })
	for i := 0; lines > mostUserLines && i < len(order)-1; i++ {
		lines -= len(order[i].Users)
		order[i].Users = nil
	}
}

// UsedBy is what users have used in a period, by runs that are over: those that the account has, and those that workloads tell of
// and it does not name. What no user is known of has the name "".
func (a *Account) UsedBy(w Window, runs []Run) []UserUsed {
	var users []UserUsed
	for i := range a.Sums {
		if a.Sums[i].Same(w) {
			users = slices.Clone(a.Sums[i].Users)
		}
	}
	for _, r := range a.Unsettled(runs) {
		users = addUserRun(users, &r, w)
	}
	if len(users) == 0 {
		return nil
	}
	left := map[string]int64{}
	for _, u := range a.Used(w, runs) {
		left[u.Resource] = Plus(left[u.Resource], u.UnitSeconds)
	}
	for _, u := range users {
		left[u.Resource] = max(0, left[u.Resource]-u.UnitSeconds)
	}
	for resource, seconds := range left {
		if seconds > 0 {
			users = append(users, UserUsed{Resource: resource, UnitSeconds: seconds})
		}
	}
	slices.SortFunc(users, inOrder)
	return users
}
