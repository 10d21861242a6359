package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/counterfoil/counterfoil"
)

// problemBase is where the type of every problem begins (contract.md §4).
const problemBase = "https://counterfoil.dev/problems/"

// Codes of this package's own sentinels.
const (
	codeInvalid      = "request-invalid"
	codeUnauthorized = "unauthorized"
)

// Problem is an RFC 9457 problem.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus and ContentType are what huma asks of an error.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of problems.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// statuses is the one place that turns sentinels into statuses; the first that
// an error wraps counts.
var statuses = []struct {
	err    error
	status int
}{
	{ErrInvalid, http.StatusBadRequest},
	{ErrUnauthorized, http.StatusUnauthorized},
	{counterfoil.ErrOperationUnknown, http.StatusBadRequest},
	{counterfoil.ErrNotFound, http.StatusNotFound},
	{counterfoil.ErrConflict, http.StatusConflict},
	{counterfoil.ErrFenced, http.StatusConflict},
	{counterfoil.ErrSettled, http.StatusConflict},
	{counterfoil.ErrTooEarly, http.StatusConflict},
	{counterfoil.ErrEvidenceFull, http.StatusConflict},
	{counterfoil.ErrCharter, http.StatusConflict},
	{counterfoil.ErrClockSkew, http.StatusConflict},
	{counterfoil.ErrUnreadable, http.StatusServiceUnavailable},
	{counterfoil.ErrUntrusted, http.StatusServiceUnavailable},
	{counterfoil.ErrClosed, http.StatusServiceUnavailable},
	{counterfoil.ErrUnavailable, http.StatusServiceUnavailable},
}

// problemOf is the problem that err stands for.
func problemOf(err error) *Problem {
	status := http.StatusInternalServerError
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			status = s.status
			break
		}
	}
	code := counterfoil.Code(err)
	switch {
	case errors.Is(err, ErrInvalid):
		code = codeInvalid
	case errors.Is(err, ErrUnauthorized):
		code = codeUnauthorized
	}
	return &Problem{problemBase + code, http.StatusText(status), status, err.Error()}
}

// errorOf is the error that a problem stands for, on the other end of the wire.
func errorOf(p *Problem) error {
	code := strings.TrimPrefix(p.Type, problemBase)
	for _, s := range statuses {
		have := counterfoil.Code(s.err)
		switch s.err {
		case ErrInvalid:
			have = codeInvalid
		case ErrUnauthorized:
			have = codeUnauthorized
		}
		if code == have {
			return &wireError{p.Detail, s.err}
		}
	}
	return fmt.Errorf("%s (status %d)", p.Detail, p.Status)
}

// wireError has the words of the other end, and its sentinel.
type wireError struct {
	words    string
	sentinel error
}

func (e *wireError) Error() string { return e.words }
func (e *wireError) Unwrap() error { return e.sentinel }

func writeProblem(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller went away
}

// setUpHuma makes huma write our problems. It has package variables for that
// and nothing else, so they are set once, to values that hold for every API of
// the process.
var setUpHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		words := []string{msg}
		for _, err := range errs {
			var d huma.ErrorDetailer
			if errors.As(err, &d) {
				// Not the value: it may be a secret in the wrong place.
				e := d.ErrorDetail()
				words = append(words, strings.TrimSpace(e.Location+" "+e.Message))
			} else if err != nil {
				words = append(words, err.Error())
			}
		}
		code := codeInvalid
		switch {
		case status == http.StatusUnprocessableEntity:
			status = http.StatusBadRequest // one status for every malformed request
		case status >= http.StatusInternalServerError:
			code = "internal"
		}
		return &Problem{problemBase + code, http.StatusText(status), status, strings.Join(words, "; ")}
	}
})
