package policyfile

import (
	"maps"
	"slices"
)

// longestName bounds what is compared: nobody mistypes a field by this much.
const longestName = 64

// elsewhere are names that other products use for what is meant here.
var elsewhere = map[string]string{
	"retention": "protect", "expiry": "protect", "expires": "protect", "horizon": "protect",
	"timeout": "deadline", "lock": "lease", "route": "match", "path": "match", "routes": "match",
}

// suggest is the known name that was probably meant, or empty.
func suggest(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return near
	}
	for _, theirs := range []string{name, Nearest(name, slices.Sorted(maps.Keys(elsewhere)))} {
		if ours := elsewhere[theirs]; slices.Contains(known, ours) {
			return ours
		}
	}
	return ""
}

// Nearest is the known name that differs from name by the fewest letters, if
// by few enough to be a slip; empty otherwise.
func Nearest(name string, known []string) string {
	if len(name) > longestName {
		return ""
	}
	best, least := "", max(1, min(3, len(name)/3))+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above+1, row[j]+1, diagonal+cost)
			diagonal = above
		}
	}
	return row[len(b)]
}
