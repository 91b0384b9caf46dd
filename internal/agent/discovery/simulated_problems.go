package discovery

import (
	"fmt"
	"strconv"
	"strings"
)

// parseProblems reads "0=words; 3=other words".
func parseProblems(text string) (map[int]string, error) {
	problems := map[int]string{}
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		index, words, ok := strings.Cut(strings.TrimSpace(part), "=")
		card, err := strconv.Atoi(index)
		if !ok || err != nil || words == "" {
			return nil, fmt.Errorf("%q is not of the form INDEX=WHAT IS WRONG", part)
		}
		problems[card] = words
	}
	return problems, nil
}

// parseLoads reads "0=70; 3=15".
func parseLoads(text string) (map[int]*Load, error) {
	said, err := parseProblems(text)
	if err != nil {
		return nil, err
	}
	loads := map[int]*Load{}
	for card, words := range said {
		core, err := strconv.Atoi(words)
		if err != nil || core < 0 || core > 100 {
			return nil, fmt.Errorf("%q is no percentage", words)
		}
		loads[card] = &Load{Core: core}
	}
	return loads, nil
}
