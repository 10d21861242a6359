package cli

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

// isTerminal reports whether w shows what is written to a person.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// paint colours words, or leaves them as they are.
type paint struct{ on bool }

// newPaint colours on terminals only, and never against NO_COLOR
// (no-color.org: any value but the empty one).
func newPaint(w io.Writer, lookup func(string) (string, bool)) paint {
	never, _ := lookup("NO_COLOR")
	term, _ := lookup("TERM")
	return paint{isTerminal(w) && never == "" && term != "dumb"}
}

func (p paint) with(s string, attributes ...color.Attribute) string {
	if !p.on || s == "" {
		return s
	}
	c := color.New(attributes...)
	c.EnableColor() // decided here, not by the library's global
	return c.Sprint(s)
}

func (p paint) red(s string) string    { return p.with(s, color.FgRed, color.Bold) }
func (p paint) yellow(s string) string { return p.with(s, color.FgYellow) }
func (p paint) green(s string) string  { return p.with(s, color.FgGreen) }
func (p paint) bold(s string) string   { return p.with(s, color.Bold) }
func (p paint) faint(s string) string  { return p.with(s, color.Faint) }

// printer writes results to stdout.
type printer struct {
	w     io.Writer
	json  bool
	paint paint
	err   error // the first that a write returned
}

func (p *printer) write(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
}

func (p *printer) line(parts ...string) { p.write(strings.Join(parts, " ") + "\n") }

// items prints the JSON form of every result.
func items[T any](p *printer, list []T) error { return page(p, admin.NewPage(list, "")) }

// page is items with the cursor of the next page, where there is one.
func page[T any](p *printer, list admin.Page[T]) error {
	e := json.NewEncoder(p.w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(list)
}

// cell is a word of a table; style colours it after its width is known, since
// escape sequences have none.
type cell struct {
	text  string
	style func(string) string
}

func plain(s string) cell { return cell{text: s} }

// table prints rows in columns; the first row is the heading.
func (p *printer) table(heading []string, rows [][]cell) {
	all := make([][]cell, 0, len(rows)+1)
	head := make([]cell, len(heading))
	for i, h := range heading {
		head[i] = cell{strings.ToUpper(h), p.paint.bold}
	}
	p.columns("", append(append(all, head), rows...))
}

// columns prints rows aligned, each line after indent.
func (p *printer) columns(indent string, rows [][]cell) {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, c := range row {
			text := c.text
			if c.style != nil {
				text = c.style(text)
			}
			b.WriteString(text)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		p.write(strings.TrimRight(b.String(), " ") + "\n")
	}
}
