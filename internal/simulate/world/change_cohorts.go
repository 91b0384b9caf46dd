package world

import (
	"fmt"
	"slices"

	"github.com/elastic-ai/elastic/internal/admission"
)

// describeCohorts gives those an object that queues or other cohorts name and that have none, so that it can be set.
func (c *Cluster) describeCohorts() {
	for _, name := range sortedKeys(c.tree().Cohorts) {
		if name != "" && !slices.ContainsFunc(c.Cohorts, func(co admission.Cohort) bool { return co.Name == name }) {
			c.Cohorts = append(c.Cohorts, admission.Cohort{Name: name})
		}
	}
}

// setFairSharing sets how a tree of cohorts shares what can be borrowed. It is its root that says so.
func setFairSharing(c *Cluster, name, value string) (bool, error) {
	c.describeCohorts()
	found := false
	for i := range c.Cohorts {
		co := &c.Cohorts[i]
		if name != co.Name && (name != "*" || co.Parent != "") {
			continue
		}
		found = true
		if co.Parent != "" {
			return true, fmt.Errorf("cohort %s is below %s: how a tree shares is set at its root, %s", name, co.Parent, c.top("cohort "+name))
		}
		if err := choose(&co.Policy, value, capacityPolicies); err != nil {
			return true, err
		}
	}
	return found, nil
}

// ofCohorts sets what a Cohort says itself.
func ofCohorts(set func(*Cluster, *admission.Cohort, string) error) setter {
	return func(c *Cluster, name, value string) (bool, error) {
		c.describeCohorts()
		found := false
		for i := range c.Cohorts {
			if co := &c.Cohorts[i]; name == "*" || co.Name == name {
				found = true
				if err := set(c, co, value); err != nil {
					return true, err
				}
			}
		}
		return found, nil
	}
}

func setCohortWeight(_ *Cluster, co *admission.Cohort, text string) (err error) {
	co.FairWeight, err = weight(text)
	return err
}

// setParent puts a cohort below another one, or, with nothing, below none.
func setParent(c *Cluster, co *admission.Cohort, parent string) error {
	above, seen := c.tree().Cohorts, map[string]bool{}
	for at := parent; at != ""; at = above[at] {
		switch {
		case at == co.Name:
			return fmt.Errorf("cohort %s is %s, or above it", co.Name, parent)
		case seen[at]:
			return fmt.Errorf("the cohorts above %s are in a circle", parent)
		}
		seen[at] = true
	}
	co.Parent = parent
	return nil
}
