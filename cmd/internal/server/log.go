package server

import (
	"context"
	"io"
	"log/slog"
	"strings"
)

// NewLogger writes text for people at a terminal and JSON for everybody else.
func NewLogger(w io.Writer, terminal bool) *slog.Logger {
	if terminal {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}

// serverLog is the log of net/http: what callers do wrong is debug output, and
// a panic of a handler is an error.
type serverLog struct{ slog.Handler }

func (h serverLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: panic serving") {
		r.Level = slog.LevelError
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// Enabled lets everything come to Handle, which knows what it is.
func (h serverLog) Enabled(context.Context, slog.Level) bool { return true }
