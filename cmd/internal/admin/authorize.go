package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

type actorKey struct{}

// actor is the name of the token that came with the request.
func actor(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

// authorize lets in who has a known token, and reading from this machine
// without one. A token that is wrong never passes for none.
func authorize(next http.Handler, tokens func() Tokens) http.Handler {
	guard := http.NewCrossOriginProtection() // a page in a browser has no business here
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		name, err := who(r, tokens())
		if err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeProblem(w, problemOf(err))
			return
		}
		if err := guard.Check(r); err != nil {
			writeProblem(w, &Problem{problemBase + codeInvalid, http.StatusText(http.StatusForbidden), http.StatusForbidden, "the request comes from a page of another origin"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, name)))
	})
}

func who(r *http.Request, tokens Tokens) (string, error) {
	// One text for every reason: it says nothing of what exists (A01).
	refused := fmt.Errorf("%w: send Authorization: Bearer TOKEN, with a token of admin_tokens_file", ErrUnauthorized)
	fields := r.Header.Values("Authorization")
	if len(fields) == 0 {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && fromThisMachine(r) {
			return "", nil
		}
		_, _ = tokens.Actor("") // the same work as for a wrong one
		return "", refused
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if len(fields) != 1 || !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	name, ok := tokens.Actor(token)
	if !ok {
		return "", refused
	}
	return name, nil
}

// fromThisMachine reports that the peer is this machine and speaks for itself:
// a proxy here that passes on somebody else's request says so, and a page that
// had its own name resolved to this machine asks for that name.
func fromThisMachine(r *http.Request) bool {
	if r.Header.Get("Forwarded") != "" || r.Header.Get("X-Forwarded-For") != "" {
		return false
	}
	return loopback(r.RemoteAddr) && (loopback(r.Host) || strings.EqualFold(hostOf(r.Host), "localhost"))
}

func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	return host
}

func loopback(hostport string) bool {
	addr, err := netip.ParseAddr(hostOf(hostport))
	return err == nil && addr.Unmap().IsLoopback()
}
