// Command echo guards an Echo service.
//
//	go run .
//	curl -si localhost:8080/payments -H 'X-Account-Id: acct-1' -H 'Idempotency-Key: k-1' -d 'amount=100'   # twice
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/httpguard"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

func main() {
	h, err := service(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "localhost:8080", Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// service is the whole of it: a policy, an engine over a store, the guard.
func service(ctx context.Context) (http.Handler, error) {
	pay := policy.NewOperation("payment")
	pay.Match = []string{"POST /payments", "POST /declined"}
	pay.Scope.Principal = policy.Principal{Kind: policy.PrincipalHeader, Header: "X-Account-Id"}
	pay.Inputs.ClientRetryBudget.Value = 4 * time.Hour
	pay.Inputs.SafetyMargin.Value = 20 * time.Hour
	p := &policy.Policy{Version: 1, Operations: []policy.Operation{pay}} // a real service reads policy.yaml

	// A real service opens a durable store; memory forgets everything.
	engine, err := counterfoil.Open(ctx, memstore.New(memstore.Options{}), p, counterfoil.Options{})
	if err != nil {
		return nil, err
	}
	guard, err := httpguard.New(engine, httpguard.Options{})
	if err != nil {
		return nil, err
	}

	var charges atomic.Int64
	e := echo.New()
	e.Use(middleware.RequestID())
	// Authentication goes here, before the guard: a replay must be authorised too.
	e.Use(guarded(guard))
	e.POST("/declined", func(echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no funds") })
	e.POST("/payments", func(c echo.Context) error {
		n := charges.Add(1)
		c.Response().Header().Set("Location", fmt.Sprintf("/payments/%d", n))
		return c.String(http.StatusCreated, fmt.Sprintf("charge %d", n))
	})
	return e, nil
}

// guarded makes Echo middleware of the guard. echo.WrapMiddleware would answer
// a handler's error outside of the guard, after the guard had recorded an empty
// 200; here the error is answered inside, so that it reaches the record.
func guarded(guard *httpguard.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Response()
			defer c.SetResponse(outer)
			guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil
		}
	}
}
