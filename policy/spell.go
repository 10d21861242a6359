package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FormatSize spells a number of bytes as policy.yaml does: 1MiB, 64KiB, 100B.
func FormatSize(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + "MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.FormatInt(n>>10, 10) + "KiB"
	}
	return strconv.FormatInt(n, 10) + "B"
}

func spellInts(s []int) string {
	words := make([]string, len(s))
	for i, n := range s {
		words[i] = strconv.Itoa(n)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (u OnUnknown) spell() string {
	if u.Rule == UnknownRedispatch {
		return "{redispatch_within: " + FormatDuration(u.Within) + "}"
	}
	return string(u.Rule)
}

func (v Volume) spell() string {
	if v.Per == 0 {
		return ""
	}
	per := FormatDuration(v.Per)
	switch v.Per {
	case Day, time.Hour, time.Minute, time.Second:
		per = strings.TrimPrefix(per, "1")
	}
	return strconv.FormatFloat(v.Records, 'f', -1, 64) + "/" + per
}

// spell is the input's length, with its retriers or its source.
func (i Input) spell() string {
	switch {
	case len(i.Retriers) == 0 && i.Source != "":
		return FormatDuration(i.Value) + " (" + i.Source + ")"
	case len(i.Retriers) == 0:
		return FormatDuration(i.Value)
	}
	words := make([]string, len(i.Retriers))
	for j, r := range i.Retriers {
		words[j] = r.Name + " " + FormatDuration(r.Value)
		if r.Inside != "" {
			words[j] += " inside " + r.Inside
		}
	}
	if i.Source != "" {
		words = append(words, i.Source)
	}
	return fmt.Sprintf("%s (%s)", FormatDuration(i.Total()), strings.Join(words, ", "))
}

// spell is one line that differs whenever the fingerprint does.
func (f Fingerprint) spell() string {
	b, err := json.Marshal(f)
	if err != nil {
		panic("policy: " + err.Error()) // strings always have a JSON form
	}
	if string(b) == "{}" {
		return "all members"
	}
	return string(b)
}
