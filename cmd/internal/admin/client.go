package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// Client is a Service of another process. It is safe for concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
}

var _ Service = (*Client)(nil)

// NewClient asks at an address as counterfoil.yaml spells it (admin:). The
// token may be empty for reading from the same machine.
func NewClient(address, token string) *Client {
	return &Client{
		base: BaseURL(address), token: token,
		http: &http.Client{
			// No proxy and no redirect: the token is for this address alone.
			Transport: &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}
}

// BaseURL is where to reach a listener of that address from its own machine.
func BaseURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
		if err == nil && addr.Is6() {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Health is what /healthz says.
type Health struct {
	Version int    `json:"version"`
	Service string `json:"service"`
	Release string `json:"release"`
}

// ServiceName is what a Counterfoil calls itself on /healthz.
const ServiceName = "counterfoil"

// Ping reports whether a Counterfoil answers. [ErrNobody]: the address is free
// for all that can be seen from here. Any other error means that somebody is
// there, and the store must not be opened beside it.
func (c *Client) Ping(ctx context.Context) error {
	var h Health
	if err := c.do(ctx, http.MethodGet, "/healthz", nil, &h); err != nil {
		return err
	}
	if h.Service != ServiceName {
		return fmt.Errorf("%s answers, but it is not a counterfoil; check admin: in counterfoil.yaml", c.base)
	}
	return nil
}

// Records implements [Service].
func (c *Client) Records(ctx context.Context, f Filter) (Page[Record], error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("operation", f.Operation)
	set("cursor", f.Cursor)
	if f.State != counterfoil.Absent {
		set("state", f.State.String())
	}
	if f.OlderThan != 0 {
		set("older_than", policy.FormatDuration(f.OlderThan))
	}
	if f.Limit != 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	path := "/v1/records"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return get[Page[Record]](ctx, c, http.MethodGet, path, nil)
}

// Record implements [Service].
func (c *Client) Record(ctx context.Context, id counterfoil.ID) (Record, error) {
	return first(get[Page[Record]](ctx, c, http.MethodGet, "/v1/records/"+id.String(), nil))
}

// Resolve implements [Service]; the actor is the token's.
func (c *Client) Resolve(ctx context.Context, id counterfoil.ID, w Word) (Record, error) {
	return first(get[Page[Record]](ctx, c, http.MethodPost, "/v1/records/"+id.String()+"/resolve", w))
}

func first(p Page[Record], err error) (Record, error) {
	if err == nil && len(p.Items) != 1 {
		err = fmt.Errorf("the server sent %d records for one", len(p.Items))
	}
	if err != nil {
		return Record{}, err
	}
	return p.Items[0], nil
}

// Operations implements [Service].
func (c *Client) Operations(ctx context.Context) (Page[Operation], error) {
	return get[Page[Operation]](ctx, c, http.MethodGet, "/v1/operations", nil)
}

// Sweep implements [Service].
func (c *Client) Sweep(ctx context.Context) (SweepResult, error) {
	return get[SweepResult](ctx, c, http.MethodPost, "/v1/sweep", nil)
}

// Reconcile implements [Service].
func (c *Client) Reconcile(ctx context.Context) (ReconcileResult, error) {
	return get[ReconcileResult](ctx, c, http.MethodPost, "/v1/reconcile", nil)
}

// Backup implements [Service].
func (c *Client) Backup(ctx context.Context, dir string) error {
	_, err := get[Done](ctx, c, http.MethodPost, "/v1/store/backup", map[string]string{"directory": dir})
	return err
}

// Trust implements [Service]; the actor is the token's.
func (c *Client) Trust(ctx context.Context, w TrustWord) error {
	_, err := get[Done](ctx, c, http.MethodPost, "/v1/store/trust", w)
	return err
}

// Doctor implements [Service].
func (c *Client) Doctor(ctx context.Context) (Page[Finding], error) {
	return get[Page[Finding]](ctx, c, http.MethodGet, "/v1/doctor", nil)
}

func get[T any](ctx context.Context, c *Client, method, path string, body any) (v T, err error) {
	err = c.do(ctx, method, path, body, &v)
	return v, err
}

// maxAnswer bounds an answer: 500 records of the largest kind stay below it.
const maxAnswer = 64 << 20

func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	var text io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, text)
	if err != nil {
		return err
	}
	req.GetBody = nil // nothing is ever sent twice
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", ErrNobody, err)
		}
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		var p Problem
		if json.Unmarshal(answer, &p) != nil || p.Type == "" {
			return fmt.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return errorOf(&p)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not what this version expects: %w", method, path, err)
	}
	return nil
}
