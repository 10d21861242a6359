package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SizePattern is the spelling of a size, as a regular expression that JSON
// Schema and Go read alike.
const SizePattern = `^([0-9]+)(B|KB|MB|GB|KiB|MiB|GiB)$`

var sizeForm = regexp.MustCompile(SizePattern)

// ErrSize is returned by [ParseSize]; the text beside it says what to write.
var ErrSize = errors.New("not a size")

// ParseSize reads a number of bytes: 512B, 64KiB, 1MiB (1024 each), 1MB (1000
// each). Numbers without unit are refused like those of [ParseDuration].
// Errors wrap [ErrSize].
func ParseSize(s string) (int64, error) {
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		if bareNumber.MatchString(s) {
			return 0, fmt.Errorf("%w: %q has no unit; write %sB for bytes, or KiB, MiB", ErrSize, s, s)
		}
		return 0, fmt.Errorf("%w: %q is not understood; write a whole number with a unit, such as 512B, 64KiB, 1MiB or 1MB", ErrSize, s)
	}
	unit := map[string]int64{"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%w: %q is too large; write at most %s", ErrSize, s, FormatSize(maxBytes))
	}
	return n * unit, nil
}

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
