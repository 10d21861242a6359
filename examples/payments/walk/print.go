package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// printer shows requests and answers. Colours are escape sequences of our own:
// this module needs nothing but the standard library.
type printer struct {
	w      io.Writer
	colour bool
}

const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p *printer) paint(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *printer) line(parts ...string) { fmt.Fprintln(p.w, strings.Join(parts, " ")) }

// step begins a step.
func (p *printer) step(n int, title string) {
	p.line()
	p.line(p.paint(bold, fmt.Sprintf("%d. %s", n, title)))
}

// say explains, in the walk's own words.
func (p *printer) say(format string, args ...any) { p.line("  ", fmt.Sprintf(format, args...)) }

// request shows what is sent.
func (p *printer) request(name string, r request) {
	p.line()
	p.line("  ", p.paint(cyan, name+r.method+" "+r.path), p.paint(faint, "key"), r.key, p.paint(faint, "account"), r.account)
	if r.body != "" {
		p.line("    ", r.body)
	}
}

// interesting are the answer's fields that a person looks at, in this order.
var interesting = []string{
	"Idempotency-Status", "Idempotent-Replayed", "Location", "Retry-After", "Link",
	"Idempotency-Replay-Until", "Idempotency-Protected-Until", "Idempotency-Record",
}

// response shows what came back.
func (p *printer) response(name string, a *answer) {
	code := green
	switch {
	case a.status >= 500:
		code = red
	case a.status >= 400:
		code = yellow
	}
	p.line("  ", p.paint(code, fmt.Sprintf("%s%d %s", name, a.status, http.StatusText(a.status))))
	for _, f := range interesting {
		for _, v := range a.header.Values(f) {
			p.line("    ", p.paint(faint, f+":"), v)
		}
	}
	for line := range strings.Lines(readable(a)) {
		p.line("    ", strings.TrimRight(line, "\n"))
	}
}

// readable is the body; a problem is set out over lines, since people read it.
func readable(a *answer) string {
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") {
		return strings.TrimSpace(string(a.body))
	}
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(a.body), "", "  ") != nil {
		return string(a.body)
	}
	return b.String()
}

// command shows a command and what it printed.
func (p *printer) command(args []string, output string, code int) {
	words := slices.Clone(args)
	for i, w := range words {
		if strings.ContainsAny(w, " '\"") {
			words[i] = fmt.Sprintf("%q", w)
		}
	}
	p.line()
	p.line("  ", p.paint(cyan, "$ counterfoil "+strings.Join(words, " ")))
	for line := range strings.Lines(strings.TrimSpace(output)) {
		p.line(strings.TrimRight("     "+line, " \n"))
	}
	if code != 0 {
		p.line("    ", p.paint(yellow, fmt.Sprintf("exit code %d", code)))
	}
}

// ledger shows what really happened.
func (p *printer) ledger(charges int) {
	noun := "charges"
	if charges == 1 {
		noun = "charge"
	}
	p.line()
	p.line("  ", p.paint(bold, fmt.Sprintf("The ledger holds %d %s.", charges, noun)))
}
