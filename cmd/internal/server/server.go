// Package server is the program as a value: the guarded listener, the admin
// listener and the workers, over one store.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterfoil/counterfoil/cmd/internal/admin"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/framing"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
)

// Options of [New]. The zero value works.
type Options struct {
	// Wire is how the store is opened; its Logger is that of Options.
	Wire wire.Options
	// Release is the version of the program.
	Release string
	// Logger may be nil.
	Logger *slog.Logger
	// Hangup is a channel that signal.Notify sends SIGHUP to: the policy and the
	// tokens are then read again. It may be nil.
	Hangup <-chan os.Signal
	// Limits are the bounds of a guarded connection.
	Limits Limits
	// DrainTimeout is how long requests under way may take to end when the
	// server stops; 0 stands for 60 s. What has not ended by then becomes
	// unknown when its lease lapses.
	DrainTimeout time.Duration
}

// Limits bound what one connection may take. Members that are zero stand for
// the default in brackets.
type Limits struct {
	HeaderTimeout time.Duration // for the whole header [5 s]
	IdleTimeout   time.Duration // between two requests [60 s]
	BodyGrace     time.Duration // before a body must keep up with BodyRate [15 s]
	BodyRate      int64         // bytes a second [512]
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server guards one upstream. Use [New], then either Run, or Start and Stop.
type Server struct {
	config *config.Config
	o      Options
	log    *slog.Logger

	core    *wire.Core
	front   *wire.Front
	tokens  atomic.Pointer[admin.Tokens]
	reloads *prometheus.CounterVec

	guarded, admin             *http.Server
	guardedListen, adminListen net.Listener
	draining                   atomic.Bool
	reloading                  sync.Mutex // held while policy and tokens are read again

	running sync.WaitGroup
	workers context.CancelFunc
	failed  chan error // the first listener that broke
}

// New returns a server that has not started anything.
func New(c *config.Config, o Options) *Server {
	setDefault(&o.Limits.HeaderTimeout, 5*time.Second)
	setDefault(&o.Limits.IdleTimeout, time.Minute)
	setDefault(&o.Limits.BodyGrace, 15*time.Second)
	setDefault(&o.Limits.BodyRate, 512)
	setDefault(&o.DrainTimeout, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Wire.Logger = o.Logger
	return &Server{config: c, o: o, log: o.Logger, failed: make(chan error, 2)}
}

// Run serves until ctx ends, then lets requests under way end and closes
// everything in order. It returns nil after an orderly stop.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	var broken error
	select {
	case <-ctx.Done():
	case broken = <-s.failed:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.DrainTimeout)
	defer cancel()
	return errors.Join(broken, s.Stop(stop))
}

// Start opens everything and begins to serve. After an error nothing runs.
func (s *Server) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release(ctx))
		}
	}()
	// The ports first: they are the cheapest to be refused.
	var listen net.ListenConfig
	if s.guardedListen, err = listen.Listen(ctx, "tcp", s.config.Listen); err != nil {
		return cannotListen("listen", err)
	}
	if s.adminListen, err = listen.Listen(ctx, "tcp", s.config.Admin); err != nil {
		return cannotListen("admin", err)
	}
	if s.core, err = wire.Open(ctx, s.config, s.o.Wire); err != nil {
		return err
	}
	tokens, made, err := admin.OpenTokens(s.config.AdminTokensFile)
	if err != nil {
		return err
	}
	s.tokens.Store(&tokens)
	if made {
		s.log.Info("made a token for the admin listener", "file", s.config.AdminTokensFile)
	}
	if s.front, err = wire.NewFront(s.core, unserved); err != nil {
		return err
	}
	s.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "idempotency_policy_reloads_total", Help: "Attempts to put the policy file in force again, by result.",
	}, []string{"result"})
	s.reloads.WithLabelValues("ok")
	s.reloads.WithLabelValues("refused")
	s.core.Registry.MustRegister(s.reloads)
	s.serve()
	s.work(ctx)
	s.log.Info("serving", "listen", s.Addr(), "admin", s.AdminAddr(), "upstream", s.config.Upstream.String(),
		"store", s.config.Store.String(), "policy_version", s.core.Engine.Policy().Version, "observe", s.config.Observe)
	return nil
}

func cannotListen(field string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w; is another counterfoil running?", field, err)
	}
	return fmt.Errorf("%s: %w; write an address of this machine and a port that this user may open", field, err)
}

// Addr and AdminAddr are where the listeners are, once started.
func (s *Server) Addr() string { return s.guardedListen.Addr().String() }

// AdminAddr is where the admin listener is.
func (s *Server) AdminAddr() string { return s.adminListen.Addr().String() }

// Core is what is served, for tests and for programs that embed a server.
func (s *Server) Core() *wire.Core { return s.core }

// serve starts both listeners.
func (s *Server) serve() {
	errorLog := slog.NewLogLogger(serverLog{s.log.Handler()}, slog.LevelDebug)
	s.guarded = &http.Server{
		Handler:           &gate{next: s.front, limit: s.o.Limits},
		ReadHeaderTimeout: s.o.Limits.HeaderTimeout,
		IdleTimeout:       s.o.Limits.IdleTimeout,
		MaxHeaderBytes:    framing.MaxHead,
		ConnState:         framing.OnState,
		ErrorLog:          errorLog,
	}
	s.admin = &http.Server{
		Handler:           s.adminHandler(),
		ReadHeaderTimeout: s.o.Limits.HeaderTimeout,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       s.o.Limits.IdleTimeout,
		MaxHeaderBytes:    framing.MaxHead,
		ErrorLog:          errorLog,
	}
	run := func(h *http.Server, l net.Listener) {
		s.running.Go(func() {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fmt.Errorf("listener %s: %w", l.Addr(), err)
			}
		})
	}
	run(s.guarded, framing.Listener{Listener: s.guardedListen})
	run(s.admin, s.adminListen)
}

// work starts the workers, and listens for hangups.
func (s *Server) work(ctx context.Context) {
	// The workers outlive the signal to stop: they end when requests have.
	ctx, s.workers = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.core.Reconciler.Run(ctx) })
	s.running.Go(func() { s.core.Sweeper.Run(ctx) })
	s.running.Go(func() { s.refresh(ctx) })
	s.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case _, ok := <-s.o.Hangup:
				if !ok {
					return
				}
				_ = s.Reload(ctx) // it has said what is wrong
			}
		}
	})
}

// refreshEvery is how often the engine reads what others may have written to
// the store: its charter and its trust.
const refreshEvery = wire.RefreshEvery

func (s *Server) refresh(ctx context.Context) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.core.Engine.Refresh(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("the store's charter could not be read", "error", err)
			}
		}
	}
}

// Reload reads the policy and the tokens again. What cannot be read leaves the
// former in force, and is counted and said (dangers.md P11).
func (s *Server) Reload(ctx context.Context) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	before := s.core.Engine.Policy().Version
	err := s.front.Reload(ctx)
	if err != nil {
		s.reloads.WithLabelValues("refused").Inc()
		s.log.Error("the policy was not reloaded; the former stays in force", "policy_version", before, "error", err)
	} else {
		s.reloads.WithLabelValues("ok").Inc()
		s.log.Info("policy reloaded; records that exist keep theirs", "was", before, "policy_version", s.core.Engine.Policy().Version)
	}
	tokens, tokenErr := admin.ReadTokens(s.config.AdminTokensFile)
	if tokenErr != nil {
		s.log.Error("the admin tokens were not reloaded; the former stay in force", "error", tokenErr)
		return errors.Join(err, tokenErr)
	}
	s.tokens.Store(&tokens)
	return err
}

// Stop stops listening, waits for requests under way until ctx ends, and closes
// workers, engine and store, in this order. The admin listener answers until
// the requests have ended, and says that it is not ready.
func (s *Server) Stop(ctx context.Context) error {
	s.draining.Store(true)
	s.log.Info("stopping; requests under way may end")
	err := s.guarded.Shutdown(ctx)
	if err != nil {
		s.log.Warn("requests were cut off; their records become unknown when their lease lapses", "error", err)
		err = errors.Join(err, s.guarded.Close())
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if e := s.admin.Shutdown(last); e != nil {
		err = errors.Join(err, e, s.admin.Close())
	}
	err = errors.Join(err, s.release(last))
	s.log.Info("stopped")
	return err
}

// closeTimeout bounds what comes after the requests: outcomes that are still
// being settled.
const closeTimeout = 10 * time.Second

// release closes whatever is open.
func (s *Server) release(ctx context.Context) error {
	if s.workers != nil {
		s.workers()
	}
	var errs []error
	if s.guarded == nil { // Serve closes what it was given
		for _, l := range []net.Listener{s.guardedListen, s.adminListen} {
			if l != nil {
				errs = append(errs, l.Close())
			}
		}
	}
	s.running.Wait()
	if s.front != nil {
		s.front.Close()
	}
	if s.core != nil {
		errs = append(errs, s.core.Close(ctx))
	}
	return errors.Join(errs...)
}
