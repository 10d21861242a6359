package httpguard

import (
	"context"
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// fromHeader is the default PrincipalFunc: the field that the policy names,
// which only a trusted peer may set. Several lines are no principal.
func fromHeader(r *http.Request, op *policy.Operation) (counterfoil.Principal, error) {
	if op.Scope.Principal.Kind != policy.PrincipalHeader {
		return "", nil
	}
	lines := r.Header.Values(op.Scope.Principal.Header)
	if len(lines) != 1 {
		return "", nil
	}
	return counterfoil.Principal(textproto.TrimString(lines[0])), nil
}

// principal finds whose key this is. The answer, if any, is to be sent as it is.
func (g *Guard) principal(r *http.Request, op *policy.Operation) (counterfoil.Principal, *Answer, *Problem) {
	find := g.o.Principal
	if find == nil {
		find = fromHeader
	}
	p, err := find(r, op)
	switch {
	case err == nil:
	case errors.Is(err, counterfoil.ErrScopeMissing):
		p = ""
	default:
		var answer *Answer
		if errors.As(err, &answer) {
			return "", answer, nil
		}
		g.warn(r.Context(), "the principal could not be found out", "operation", op.Name, "error", loggable(err))
		return "", nil, &Problem{
			Code: ProblemScopeMissing, Status: http.StatusServiceUnavailable, RetryAfter: retrySoon,
			Detail: "whose request this is could not be found out; nothing was attempted",
		}
	}
	if p == "" && op.Scope.Principal.Kind != policy.PrincipalAnonymous {
		return "", nil, &Problem{Code: ProblemScopeMissing, Detail: "whose request this is must be known before its key counts"}
	}
	return p, nil, nil
}

// authorize asks whether a standing outcome may be shown to this caller.
func (g *Guard) authorize(r *http.Request) (*Answer, *Problem) {
	if g.o.Authorize == nil {
		return nil, nil
	}
	answer, err := g.o.Authorize(r)
	if err != nil {
		if errors.As(err, &answer) {
			return answer, nil
		}
		g.warn(r.Context(), "a replay could not be authorised", "error", loggable(err))
		return nil, &Problem{
			Code: ProblemStoreUnavailable, RetryAfter: retrySoon,
			Detail: "whether this caller may see the outcome could not be found out",
		}
	}
	return answer, nil
}

// retrySoon is what Retry-After says when something may be well again at once.
const retrySoon = time.Second

func (a *Answer) write(w http.ResponseWriter) {
	h := w.Header()
	for k, v := range a.Header {
		if k = http.CanonicalHeaderKey(k); k != "Content-Length" && k != "Transfer-Encoding" && k != "Connection" {
			h[k] = v
		}
	}
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	status := a.Status
	if status < 200 || status > 599 {
		status = http.StatusForbidden
	}
	w.WriteHeader(status)
	if bodyAllowed(status) {
		_, _ = w.Write(a.Body)
	}
}

// loggable takes the URL off an error: its path and query may name an account.
func loggable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (g *Guard) warn(ctx context.Context, msg string, args ...any) {
	if g.o.Logger != nil {
		g.o.Logger.WarnContext(ctx, msg, args...)
	}
}
