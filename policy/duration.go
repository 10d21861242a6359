package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Day is what the unit d of policy.yaml stands for: 24 hours, whatever the
// calendar says.
const Day = 24 * time.Hour

// MaxLifetime bounds every duration of a policy: 36500 days. Instants are kept
// as nanoseconds since 1970, which end in the year 2262, so a longer horizon
// could not be written down.
const MaxLifetime = 36500 * Day

// FormatDuration spells a duration as policy.yaml does: 30d, 1d12h, 1h30m,
// 90s is 1m30s. What has no finite length is "forever".
func FormatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d == Forever:
		return "forever"
	case d < 0:
		return "-" + FormatDuration(-max(d, -Forever+1))
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", Day}, {"h", time.Hour}, {"m", time.Minute}} {
		if n := d / u.unit; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			d %= u.unit
		}
	}
	if d > 0 {
		b.WriteString(d.String()) // below a minute: 30s, 1.5s, 500ms
	}
	return b.String()
}

// FormatISODuration spells a duration as ISO 8601 does, in days and smaller:
// P30D, PT4H, P1DT12H, PT0.5S. Callers read these in published policies.
func FormatISODuration(d time.Duration) string {
	if d <= 0 {
		return "PT0S"
	}
	date, clock := "", ""
	if n := d / Day; n > 0 {
		date, d = strconv.FormatInt(int64(n), 10)+"D", d%Day
	}
	if n := d / time.Hour; n > 0 {
		clock, d = strconv.FormatInt(int64(n), 10)+"H", d%time.Hour
	}
	if n := d / time.Minute; n > 0 {
		clock, d = clock+strconv.FormatInt(int64(n), 10)+"M", d%time.Minute
	}
	if d > 0 {
		// Seconds below a minute and nine digits fit a float64 exactly enough to
		// print the shortest form that reads back.
		clock += strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S"
	}
	if clock != "" {
		clock = "T" + clock
	}
	return "P" + date + clock
}

// The two spellings of a duration, as regular expressions that JSON Schema and
// Go read alike. Both also match the empty string and a bare P; a length of at
// least two rules those out.
const (
	DurationPattern    = `^(?:([0-9]+(?:\.[0-9]+)?)d)?(?:([0-9]+(?:\.[0-9]+)?)h)?(?:([0-9]+(?:\.[0-9]+)?)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?(?:([0-9]+(?:\.[0-9]+)?)ms)?$`
	ISODurationPattern = `^P(?:([0-9]+(?:\.[0-9]+)?)D)?(?:T(?:([0-9]+(?:\.[0-9]+)?)H)?(?:([0-9]+(?:\.[0-9]+)?)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?$`
)

var (
	durationForm    = regexp.MustCompile(DurationPattern)
	isoDurationForm = regexp.MustCompile(ISODurationPattern)
	bareNumber      = regexp.MustCompile(`^[+]?[0-9]+(\.[0-9]+)?$`)
	calendarUnit    = regexp.MustCompile(`(?i)^(P[^T]*[YM].*|.*[0-9] ?(y|mo|months?|years?))$`)
)

// ErrDuration is returned by [ParseDuration]; the text beside it says which
// rule is broken and what to write.
var ErrDuration = errors.New("not a duration")

// ParseDuration reads 500ms, 90s, 15m, 4h, 30d, 1h30m, and ISO 8601 in days and
// smaller (P30D, PT4H). A day is 24 hours. Numbers without unit are refused,
// since they are read as seconds by one and as milliseconds by another
// (cases.md C26); so are signs, months and years, endless words, what is
// finer than a millisecond, and what overflows. Errors wrap [ErrDuration].
func ParseDuration(s string) (time.Duration, error) {
	const write = "write a number with a unit, such as 500ms, 90s, 15m, 4h, 30d, 1h30m, or ISO 8601 such as P30D"
	bad := func(why, write string) (time.Duration, error) {
		return 0, fmt.Errorf("%w: %q %s; %s", ErrDuration, s, why, write)
	}
	switch lower := strings.ToLower(s); {
	case s == "":
		return bad("is empty", write)
	case bareNumber.MatchString(s):
		return bad("has no unit", "write "+s+"s, "+s+"m, "+s+"h or "+s+"d")
	case strings.HasPrefix(s, "-"):
		return bad("is negative", write)
	case lower == "infinite" || lower == "infinity" || lower == "inf" || lower == ".inf" || lower == "forever" || lower == "never" || lower == "∞":
		// cases.md C44: no finite lifetime covers an endless input.
		return bad("has no end, so no finite ttl covers it", "bound it (a retention, a redrive limit), or check by hand before each redrive")
	case calendarUnit.MatchString(s):
		return bad("uses months or years, which have no fixed length", "write days, such as 30d or P30D")
	}
	m := durationForm.FindStringSubmatch(s)
	if m == nil {
		if m = isoDurationForm.FindStringSubmatch(s); m == nil || s == "P" || strings.HasSuffix(s, "T") {
			return bad("is not understood", write+"; units go from days to milliseconds")
		}
	}
	var sum time.Duration
	for i, unit := range []time.Duration{Day, time.Hour, time.Minute, time.Second, time.Millisecond} {
		if i+1 >= len(m) || m[i+1] == "" {
			continue
		}
		d, ok := times(m[i+1], unit)
		if sum = add(sum, d); !ok || sum == Forever {
			return bad("is too long", "write at most "+FormatDuration(MaxLifetime))
		}
	}
	if sum%time.Millisecond != 0 {
		return bad("is finer than a millisecond, which stores would round", write)
	}
	return sum, nil
}

// times is the decimal number n, in units.
func times(n string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, _ := strings.Cut(n, ".")
	w, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || w > int64(Forever/unit) {
		return 0, false
	}
	d := time.Duration(w) * unit
	for place := unit / 10; fraction != "" && place > 0; place /= 10 {
		d = add(d, time.Duration(fraction[0]-'0')*place)
		fraction = fraction[1:]
	}
	return d, true
}
