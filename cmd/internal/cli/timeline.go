package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/policy"
)

// Measures of the drawing, in pixels.
const (
	chartWidth  = 980
	chartLeft   = 210 // labels stand left of it
	chartRight  = 90  // values stand right of the bars
	barHeight   = 16
	rowHeight   = 24
	panelTop    = 34 // an operation's name
	panelBottom = 16
	headHeight  = 44
	axisHeight  = 34
	tickApart   = 46
)

// window is one bar: from and to count from the completion of the request.
type window struct {
	label  string
	pieces []piece
	value  string
}

type piece struct {
	from, to seconds
	colour   string
	title    string
}

const (
	colourRetry   = "#d97706"
	colourCadence = "#f59e0b"
	colourMargin  = "#fcd34d"
	colourReplay  = "#2563eb"
	colourHorizon = "#0f766e"
	colourGate    = "#7c3aed"
)

// windows are the bars of one operation, shortest idea first.
func (e *explanation) windows() []window {
	one := func(label string, d seconds, colour string) window {
		return window{label, []piece{{0, d, colour, label + " " + d.String()}}, d.String()}
	}
	ws := []window{one("retry budget", e.Inputs[0].Seconds, colourRetry)}
	if broker := e.Inputs[1].Seconds; broker > 0 {
		ws = append(ws, one("broker redelivery", broker, colourRetry))
	}
	ttl := window{label: "ttl", value: e.TTL.String()}
	at := seconds(0)
	colours := []string{colourRetry, colourRetry, colourCadence, colourMargin}
	for i, t := range e.Inputs {
		if !t.Counted || t.Seconds == 0 {
			continue
		}
		ttl.pieces = append(ttl.pieces, piece{at, at + t.Seconds, colours[i], t.Name + " " + t.Seconds.String()})
		at += t.Seconds
	}
	ws = append(ws, ttl, one("replay", e.Replay, colourReplay), one("horizon", e.Horizon, colourHorizon))
	for _, g := range e.Gates {
		ws = append(ws, one("gate "+g.Name, g.Seconds, colourGate))
	}
	return ws
}

// scale maps durations to pixels: logarithmic, so that seconds and months fit
// on one line, and bent near zero, so that zero has a place.
type scale struct{ bend, longest float64 }

func newScale(panels [][]window) scale {
	shortest, longest := math.Inf(1), 1.0
	for _, ws := range panels {
		for _, w := range ws {
			for _, p := range w.pieces {
				to := time.Duration(p.to).Seconds()
				longest = max(longest, to)
				if to > 0 {
					shortest = min(shortest, to)
				}
			}
		}
	}
	return scale{max(1, min(shortest, longest)/2), longest}
}

func (s scale) x(d seconds) float64 {
	t := time.Duration(d).Seconds()
	return chartLeft + (chartWidth-chartLeft-chartRight)*math.Log1p(t/s.bend)/math.Log1p(s.longest/s.bend)
}

// ticks are the round times that fit below the axis.
func (s scale) ticks() []seconds {
	round := []time.Duration{
		time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, policy.Day,
		7 * policy.Day, 30 * policy.Day, 90 * policy.Day, 365 * policy.Day, 3650 * policy.Day, policy.MaxLifetime,
	}
	ticks := []seconds{0}
	for _, d := range round {
		t := seconds(d)
		if d.Seconds() <= s.longest && s.x(t)-s.x(ticks[len(ticks)-1]) >= tickApart {
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// drawWindows writes the windows of all operations as one SVG document.
func drawWindows(w io.Writer, version uint32, list []explanation) error {
	panels := make([][]window, len(list))
	height := headHeight + axisHeight
	for i := range list {
		panels[i] = list[i].windows()
		height += panelTop + rowHeight*len(panels[i]) + panelBottom
	}
	s := newScale(panels)

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#1f2937">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, "<title>Windows of policy version %d</title>\n", version)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	fmt.Fprintf(&b, `<text x="16" y="26" font-size="15" font-weight="600">How long each thing lasts after a request completed (policy version %d)</text>`+"\n", version)

	bottom := height - axisHeight
	for _, t := range s.ticks() {
		x := s.x(t)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e5e7eb"/>`, x, headHeight, x, bottom)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#6b7280">%s</text>`+"\n", x, bottom+16, t)
	}
	fmt.Fprintf(&b, `<text x="16" y="%d" fill="#6b7280">logarithmic</text>`+"\n", bottom+16)

	y := headHeight
	for i, ws := range panels {
		fmt.Fprintf(&b, `<g><text x="16" y="%d" font-size="13" font-weight="600">%s</text>`+"\n", y+22, escape(list[i].Operation))
		y += panelTop
		for _, w := range ws {
			w.draw(&b, s, y)
			y += rowHeight
		}
		y += panelBottom
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (w *window) draw(b *strings.Builder, s scale, y int) {
	text := y + barHeight - 4
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, chartLeft-10, text, escape(w.label))
	end := s.x(0)
	for _, p := range w.pieces {
		from, to := s.x(p.from), s.x(p.to)
		end = max(end, to)
		fmt.Fprintf(b, `<rect class="window" x="%.1f" y="%d" width="%.1f" height="%d" rx="2" fill="%s"><title>%s</title></rect>`,
			from, y, max(to-from, 1), barHeight, p.colour, escape(p.title))
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", end+6, text, escape(w.value))
}

// escape makes text of a policy harmless inside XML.
func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return "" // a strings.Builder never fails
	}
	return b.String()
}
