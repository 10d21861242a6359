package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/policy"
)

// tombstoneBytes is what a record without its response takes in the embedded
// store, everything counted but the resource: the bound that its benchmark
// keeps (docs/benchmarks.md).
const tombstoneBytes = 64

func (a *app) explainCommand() *cobra.Command {
	var svg bool
	c := &cobra.Command{
		Use:   "explain [OPERATION]",
		Short: "Show how each lifetime comes about, and what it costs to store",
		Long: `Shows each operation's inputs with who says so, the formula filled in, the
resulting lifetimes, the input that dominates, and what the declared volume
takes to store. --svg draws the windows of all operations on one time line.`,
		Example: `  counterfoil policy explain
  counterfoil policy explain payment_capture --policy policy.yaml
  counterfoil policy explain --svg > windows.svg`,
		Args: arguments(0, 1, "at most one operation"),
	}
	file := policyFlag(c)
	c.Flags().BoolVar(&svg, "svg", false, "draw the windows on one time line, as SVG")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if svg && a.out.json {
			return usagef("--svg is a drawing; take --output json out")
		}
		path, err := a.policyPath(*file)
		if err != nil {
			return err
		}
		p, err := loadPolicy(path)
		if err != nil {
			return err
		}
		ops := p.Operations
		if len(args) == 1 {
			op := p.Operation(args[0])
			if op == nil {
				return usagef("%s has no operation %q; it has %s", path, args[0], operationNames(p))
			}
			ops = []policy.Operation{*op}
		}
		list := make([]explanation, len(ops))
		for i := range ops {
			list[i] = explain(&ops[i])
		}
		switch {
		case svg:
			return drawWindows(a.Stdout, p.Version, list)
		case a.out.json:
			return items(a.out, list)
		}
		for i := range list {
			if i > 0 {
				a.out.line()
			}
			a.out.explanation(&list[i])
		}
		return a.out.err
	}
	return c
}

func operationNames(p *policy.Policy) string {
	names := make([]string, len(p.Operations))
	for i, o := range p.Operations {
		names[i] = o.Name
	}
	return strings.Join(names, ", ")
}

// explanation is an operation's lifetimes as programs read them.
type explanation struct {
	Operation string          `json:"operation"`
	Match     []string        `json:"match"`
	Principal string          `json:"principal"`
	Family    string          `json:"family"`
	KeyHeader string          `json:"key_header"`
	Inputs    []explainedTerm `json:"inputs"`
	// Formula is the right-hand side with the numbers filled in.
	Formula    string          `json:"formula"`
	Dominant   string          `json:"dominant"`
	TTL        seconds         `json:"ttl_seconds"`
	Protect    seconds         `json:"protect_seconds"`
	Horizon    seconds         `json:"horizon_seconds"`
	Replay     seconds         `json:"replay_seconds"`
	QuietAfter seconds         `json:"quiet_after_seconds"`
	Lease      seconds         `json:"lease_seconds"`
	Gates      []explainedGate `json:"gates"`
	Cost       *cost           `json:"cost,omitempty"`

	op *policy.Operation
}

type explainedTerm struct {
	Name    string  `json:"name"`
	Seconds seconds `json:"value_seconds"`
	// Source is empty where nobody is named.
	Source string `json:"source"`
	// Counted is false for the smaller side of the maximum.
	Counted  bool               `json:"counted"`
	Retriers []explainedRetrier `json:"retriers,omitempty"`
}

type explainedRetrier struct {
	Name    string  `json:"name"`
	Seconds seconds `json:"value_seconds"`
	Inside  string  `json:"inside,omitempty"`
}

type explainedGate struct {
	Name    string  `json:"name"`
	Seconds seconds `json:"for_seconds"`
}

// cost is what the declared volume holds in the store at any time.
type cost struct {
	Volume           float64 `json:"volume_records"`
	Per              seconds `json:"volume_per_seconds"`
	Records          float64 `json:"records"`
	TombstoneBytes   float64 `json:"tombstone_bytes"`
	Responses        float64 `json:"responses"`
	ResponseBytesMax float64 `json:"response_bytes_max"`
}

// seconds is a duration that JSON spells as a number of seconds.
type seconds time.Duration

// MarshalJSON spells the shortest number that reads back.
func (s seconds) MarshalJSON() ([]byte, error) {
	return []byte(strconv.FormatFloat(time.Duration(s).Seconds(), 'f', -1, 64)), nil
}

func (s seconds) String() string { return policy.FormatDuration(time.Duration(s)) }

func explain(o *policy.Operation) explanation {
	e := explanation{
		Operation: o.Name, Match: o.Match, Principal: o.Scope.Principal.String(), Family: o.Family(), KeyHeader: o.Key.Header,
		Dominant: o.Inputs.Dominant(), TTL: seconds(o.TTL()), Protect: seconds(max(o.Protect, 0)), Horizon: seconds(o.Retention()),
		Replay: seconds(o.Replay()), QuietAfter: seconds(o.QuietAfter()), Lease: seconds(o.Lease), op: o,
		Gates: []explainedGate{},
	}
	if o.Protect == 0 {
		e.Protect = e.TTL // what leaving it out stands for
	}
	if e.Match == nil {
		e.Match = []string{}
	}
	var sums []string
	for _, t := range o.Inputs.Terms() {
		term := explainedTerm{Name: t.Name, Seconds: seconds(t.Total), Source: t.Input.Source, Counted: t.Counted}
		for _, r := range t.Input.Retriers {
			term.Retriers = append(term.Retriers, explainedRetrier{r.Name, seconds(r.Value), r.Inside})
		}
		e.Inputs = append(e.Inputs, term)
		sums = append(sums, policy.FormatDuration(t.Total))
	}
	e.Formula = fmt.Sprintf("max(%s, %s) + %s + %s", sums[0], sums[1], sums[2], sums[3])
	for _, g := range o.Gates {
		e.Gates = append(e.Gates, explainedGate{g.Name, seconds(g.For)})
	}
	if o.Volume.Per > 0 {
		held := o.Volume.Over(o.Replay())
		e.Cost = &cost{
			Volume: o.Volume.Records, Per: seconds(o.Volume.Per), Records: o.ExpectedRows(),
			TombstoneBytes: o.ExpectedRows() * tombstoneBytes,
			Responses:      held, ResponseBytesMax: held * float64(o.MaxResponse),
		}
	}
	return e
}

// explanation prints one operation for people.
func (p *printer) explanation(e *explanation) {
	b, faint := p.paint.bold, p.paint.faint
	p.line(b(e.Operation), " "+strings.Join(e.Match, ", "))
	keys := fmt.Sprintf("keys of header %s, one %s each", e.KeyHeader, e.Principal)
	if e.Family != e.Operation {
		keys += ", shared in family " + e.Family
	}
	p.line(" ", keys)
	p.line()

	var rows [][]cell
	for _, t := range e.Inputs {
		row := []cell{plain(t.Name), plain(t.Seconds.String()), {t.why(), nil}}
		if !t.Counted {
			row = []cell{{t.Name, faint}, {t.Seconds.String(), faint}, {"the smaller of the two; adds nothing", faint}}
		}
		rows = append(rows, row)
	}
	p.columns("  ", rows)
	p.line()
	p.line("  ttl = max(client_retry_budget, broker_redelivery_window) + reconciliation_cadence + safety_margin")
	p.line("      =", e.Formula)
	p.line("      =", b(e.TTL.String()))
	if e.Dominant != "" {
		p.line("  dominant input:", e.Dominant+", "+e.share())
	}
	p.line()
	p.columns("  ", p.lifetimes(e))
	p.line()
	p.line("  cost:", e.costInWords())
}

// why says where a term comes from.
func (t *explainedTerm) why() string {
	var words []string
	for _, r := range t.Retriers {
		w := r.Name + " " + r.Seconds.String()
		if r.Inside != "" {
			w += " inside " + r.Inside
		}
		words = append(words, w)
	}
	switch {
	case t.Source != "":
		words = append(words, t.Source)
	case t.Seconds == 0 && len(words) == 0:
		return ""
	case len(words) == 0:
		return "no source given"
	}
	return strings.Join(words, ", ")
}

// share is how much of the TTL the dominant input makes up.
func (e *explanation) share() string {
	var most seconds
	for _, t := range e.Inputs {
		if t.Counted {
			most = max(most, t.Seconds)
		}
	}
	return fmt.Sprintf("%.0f %% of the ttl", 100*float64(most)/float64(e.TTL))
}

func (p *printer) lifetimes(e *explanation) [][]cell {
	row := func(name string, d seconds, what string) []cell {
		return []cell{plain(name), {d.String(), p.paint.bold}, plain(what)}
	}
	protect := "how long the effect can be repeated harmfully"
	if e.op.Protect == 0 {
		protect = "not given, so the ttl counts"
	}
	replay := "the whole response is kept, from completion"
	if e.Replay == 0 {
		replay = "no response is kept; retries get the status and the resource"
	}
	rows := [][]cell{
		row("replay", e.Replay, replay),
		row("protect", e.Protect, protect),
		row("horizon", e.Horizon, "max(ttl, protect): the record itself is kept, from completion"),
		row("quiet after", e.QuietAfter, fmt.Sprintf("deadline %s + settle %s after the claim; an unknown outcome counts from there",
			policy.FormatDuration(e.op.Deadline), policy.FormatDuration(e.op.Settle))),
		row("lease", e.Lease, "a claim that is not renewed for so long is abandoned"),
	}
	for _, g := range e.Gates {
		rows = append(rows, row("gate "+g.Name, g.Seconds, "from the last dispatch; nothing is deleted before"))
	}
	return rows
}

func (e *explanation) costInWords() string {
	c := e.Cost
	if c == nil {
		return "unknown; write volume: 50000/d to see it"
	}
	per := strings.TrimPrefix(c.Per.String(), "1")
	s := fmt.Sprintf("%s/%s × %s = %s records at any time, %s at %d B each", amount(c.Volume), per, e.Horizon,
		amount(c.Records), bytesInWords(c.TombstoneBytes), tombstoneBytes)
	if c.Responses > 0 {
		s += fmt.Sprintf(";\n        responses: %s/%s × %s = %s at any time, %s at 1KiB each, at most %s at %s each", amount(c.Volume), per, e.Replay,
			amount(c.Responses), bytesInWords(c.Responses*1024), bytesInWords(c.ResponseBytesMax), policy.FormatSize(e.op.MaxResponse))
	}
	return s
}

// amount is a number of things, with the thousands set apart.
func amount(n float64) string {
	s := strconv.FormatFloat(math.Ceil(n), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bytesInWords is a size to two or three digits.
func bytesInWords(n float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for n >= 1000 && i < len(units)-1 {
		n, i = n/1000, i+1
	}
	if n < 10 && i > 0 {
		return strconv.FormatFloat(n, 'f', 1, 64) + " " + units[i]
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " " + units[i]
}
