package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/policy"
)

// APIOptions are the settings of the records API.
type APIOptions struct {
	// Tokens are asked on every request, so that a reload counts at once.
	Tokens func() Tokens
	// Release is the version of the program.
	Release string
	Logger  *slog.Logger
}

// NewHandler serves the records API under /v1/.
func NewHandler(s Service, o APIOptions) http.Handler {
	setUpHuma()
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Counterfoil records API", o.Release)
	config.CreateHooks = nil // they add a $schema member to every answer
	config.SchemasPath = ""
	config.DocsPath = "" // it loads a script from elsewhere
	config.OpenAPIPath = "/v1/openapi"
	config.RejectUnknownQueryParameters = true // a token in a query, too (dangers.md A02)
	config.Formats = map[string]huma.Format{"application/json": {Marshal: marshal, Unmarshal: unmarshal}, "json": {Marshal: marshal, Unmarshal: unmarshal}}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token of admin_tokens_file. From this machine, reading needs none."},
	}
	config.Security = []map[string][]string{{"token": {}}}
	api := humago.New(mux, config)
	r := routes{api: api, log: o.Logger}
	r.records(s)
	r.store(s)
	mux.HandleFunc("GET /v1/docs", docsPage(api.OpenAPI()))
	return authorize(mux, o.Tokens)
}

func marshal(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// unmarshal refuses doubled members and what is nested too deeply before
// anything is believed (dangers.md A16). Unknown members are huma's to refuse.
func unmarshal(data []byte, v any) error {
	if !jsontext.Value(data).IsValid() {
		return errors.New("the body is not JSON, or has one member twice, or is nested too deeply")
	}
	return json.NewDecoder(bytes.NewReader(data)).Decode(v)
}

type routes struct {
	api huma.API
	log *slog.Logger
}

type body[T any] struct{ Body T }

func answer[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, problemOf(err)
	}
	return &body[T]{v}, nil
}

type listInput struct {
	Operation string `query:"operation" doc:"Only records of this operation."`
	State     string `query:"state" enum:"in_progress,unknown,failed,completed,tombstone,announced" doc:"Only records in this state."`
	OlderThan string `query:"older_than" example:"15m" doc:"Only records made at least this long ago: 90s, 15m, 4h, 30d, P30D."`
	Limit     int    `query:"limit" minimum:"1" default:"50" doc:"At most this many; never more than 500."`
	Cursor    string `query:"cursor" maxLength:"4096" doc:"next_cursor of the page before."`
}

func (in *listInput) filter() (f Filter, err error) {
	f = Filter{Operation: in.Operation, Limit: in.Limit, Cursor: in.Cursor}
	if in.State != "" {
		if f.State, err = counterfoil.ParseState(in.State); err != nil {
			return f, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if in.OlderThan != "" {
		if f.OlderThan, err = policy.ParseDuration(in.OlderThan); err != nil {
			return f, fmt.Errorf("%w: older_than: %w", ErrInvalid, err)
		}
	}
	return f, nil
}

type idInput struct {
	ID string `path:"id" minLength:"40" maxLength:"40" doc:"As in the Idempotency-Record header."`
}

func parseID(s string) (counterfoil.ID, error) {
	id, err := counterfoil.ParseID(s)
	if err != nil {
		return id, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return id, nil
}

type resolveInput struct {
	ID   string `path:"id" minLength:"40" maxLength:"40" doc:"As in the Idempotency-Record header."`
	Body Word
}

func (r routes) records(s Service) {
	huma.Register(r.api, operation("list-records", http.MethodGet, "/v1/records", "List records"),
		func(ctx context.Context, in *listInput) (*body[Page[Record]], error) {
			f, err := in.filter()
			if err != nil {
				return nil, problemOf(err)
			}
			return answer(s.Records(ctx, f))
		})
	huma.Register(r.api, operation("get-record", http.MethodGet, "/v1/records/{id}", "One record, its evidence, and why it is still here"),
		func(ctx context.Context, in *idInput) (*body[Page[Record]], error) {
			id, err := parseID(in.ID)
			if err != nil {
				return nil, problemOf(err)
			}
			return one(s.Record(ctx, id))
		})
	huma.Register(r.api, operation("resolve-record", http.MethodPost, "/v1/records/{id}/resolve", "Settle a record whose outcome is unknown"),
		func(ctx context.Context, in *resolveInput) (*body[Page[Record]], error) {
			id, err := parseID(in.ID)
			if err != nil {
				return nil, problemOf(err)
			}
			in.Body.Actor = actor(ctx)
			rec, err := s.Resolve(ctx, id, in.Body)
			r.did(ctx, "resolve", err, "record", id, "outcome", in.Body.Outcome)
			return one(rec, err)
		})
	huma.Register(r.api, operation("list-operations", http.MethodGet, "/v1/operations", "Operations of the policy in force, and their records by state"),
		func(ctx context.Context, _ *struct{}) (*body[Page[Operation]], error) {
			return answer(s.Operations(ctx))
		})
}

// one is a list of one, so that every document has the same shape.
func one(rec Record, err error) (*body[Page[Record]], error) {
	return answer(NewPage([]Record{rec}, ""), err)
}

type backupInput struct {
	Body struct {
		Directory string `json:"directory" minLength:"1" maxLength:"4096" doc:"An absolute path on the server's machine that does not exist yet."`
	}
}

// Done says that something was carried out.
type Done struct {
	Version int  `json:"version"`
	Done    bool `json:"done"`
}

func (r routes) store(s Service) {
	huma.Register(r.api, operation("sweep", http.MethodPost, "/v1/sweep", "One pass of expiry"),
		func(ctx context.Context, _ *struct{}) (*body[SweepResult], error) {
			res, err := s.Sweep(ctx)
			r.did(ctx, "sweep", err)
			return answer(res, err)
		})
	huma.Register(r.api, operation("reconcile", http.MethodPost, "/v1/reconcile", "One pass over abandoned claims"),
		func(ctx context.Context, _ *struct{}) (*body[ReconcileResult], error) {
			res, err := s.Reconcile(ctx)
			r.did(ctx, "reconcile", err)
			return answer(res, err)
		})
	huma.Register(r.api, operation("backup-store", http.MethodPost, "/v1/store/backup", "A consistent copy of the store"),
		func(ctx context.Context, in *backupInput) (*body[Done], error) {
			err := s.Backup(ctx, in.Body.Directory)
			r.did(ctx, "backup", err)
			return answer(Done{Version, true}, err)
		})
	huma.Register(r.api, operation("trust-store", http.MethodPost, "/v1/store/trust", "Trust the store again after it lost writes"),
		func(ctx context.Context, in *body[TrustWord]) (*body[Done], error) {
			in.Body.Actor = actor(ctx)
			err := s.Trust(ctx, in.Body)
			r.did(ctx, "trust", err)
			return answer(Done{Version, true}, err)
		})
	huma.Register(r.api, operation("doctor", http.MethodGet, "/v1/doctor", "Check the store's settings"),
		func(ctx context.Context, _ *struct{}) (*body[Page[Finding]], error) {
			return answer(s.Doctor(ctx))
		})
}

func operation(id, method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary,
		MaxBodyBytes: 64 << 10, BodyReadTimeout: 5 * time.Second,
	}
}

// did leaves a trace of every mutation, with its actor.
func (r routes) did(ctx context.Context, what string, err error, attrs ...any) {
	if r.log == nil {
		return
	}
	attrs = append([]any{"action", what, "actor", actor(ctx)}, attrs...)
	if err != nil {
		r.log.WarnContext(ctx, "admin action refused", append(attrs, "error", err)...)
		return
	}
	r.log.InfoContext(ctx, "admin action", attrs...)
}
