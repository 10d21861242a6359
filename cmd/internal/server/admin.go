package server

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/admin"
)

// adminHandler is the admin listener: the records API, metrics, and the word on
// how we are.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", admin.NewHandler(s.core.Service, admin.APIOptions{
		Tokens:  func() admin.Tokens { return *s.tokens.Load() },
		Release: s.o.Release, Logger: s.log,
	}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.core.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	return mux
}

// healthz: the process is alive.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, admin.Health{Version: admin.Version, Service: admin.ServiceName, Release: s.o.Release})
}

// readiness is what /readyz says.
type readiness struct {
	Version int    `json:"version"`
	Ready   bool   `json:"ready"`
	Code    string `json:"code,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// readyz: requests may be sent here. That a sweep is late is no reason to send
// none: no answer depends on it.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		writeJSON(w, http.StatusServiceUnavailable, readiness{Version: admin.Version, Code: "stopping", Detail: "the server is stopping"})
		return
	}
	if err := s.core.Ready(r.Context()); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, readiness{Version: admin.Version, Code: counterfoil.Code(err), Detail: err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, readiness{Version: admin.Version, Ready: true})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller went away
}
