package policy

import "time"

// TTL is the formula's result for this operation: how long after an attempt a
// retry of it can still come.
func (o *Operation) TTL() time.Duration { return o.Inputs.TTL() }

// Retention is the horizon as a duration: max(ttl, protect). It counts from
// completion, or from [Operation.QuietAfter] for outcomes nobody knows, never
// from the claim: counted from there, an operation that takes longer than its
// retention would be forgotten the moment it ends (cases.md C86).
func (o *Operation) Retention() time.Duration { return max(o.TTL(), o.Protect) }

// Horizon is the instant before which a record completed then stays.
func (o *Operation) Horizon(completed time.Time) time.Time {
	return completed.Add(o.Retention())
}

// Replay is how long the whole response is kept after completion: the TTL
// where ReplayFor is nil, never longer than the horizon. Zero keeps none. The
// record itself stays for [Operation.Retention] (cases.md C43).
func (o *Operation) Replay() time.Duration {
	if o.ReplayFor == nil {
		return o.TTL()
	}
	return min(*o.ReplayFor, o.Retention())
}

// QuietAfter is deadline + settle: this long after its claim an attempt can no
// longer take effect (t_quiet of design.md §3).
func (o *Operation) QuietAfter() time.Duration { return add(o.Deadline, o.Settle) }

// ExpectedRows is how many records the declared volume holds at any time:
// volume × horizon. It is zero where no volume is declared.
func (o *Operation) ExpectedRows() float64 { return o.Volume.Over(o.Retention()) }

// Over is the number of records that come within d.
func (v Volume) Over(d time.Duration) float64 {
	if v.Per <= 0 {
		return 0
	}
	return v.Records * (d.Seconds() / v.Per.Seconds())
}
