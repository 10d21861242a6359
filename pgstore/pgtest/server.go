package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// CronDatabase is where pg_cron keeps its jobs, on a server with Options.Cron.
const CronDatabase = "counterfoil"

// patience is how long anything may take before it is an error. A loaded
// machine is slow; a test that waits for this long has failed anyway.
const patience = time.Minute

// Options are those of Start; the zero value works.
type Options struct {
	// Settings are further lines of postgresql.conf, and win over ours.
	Settings map[string]string

	// Cron loads pg_cron, with its jobs in CronDatabase, which exists then. The
	// extension is for the test to create.
	Cron bool

	// Durable has the server sync to the disk, as in production: for tests that
	// measure or that look at how commits are grouped. The others do without. A
	// server that is killed loses nothing either way, since what it wrote stays
	// with the kernel; no test that kills a process can tell a missing fsync.
	Durable bool
}

// Server is a PostgreSQL server. Methods may be called from several goroutines.
type Server struct {
	in   *install
	dir  string
	port string
	next atomic.Int32 // the last database's number

	mu     sync.Mutex // guards what follows; held while the server changes its state
	proc   *process   // the latest
	frozen bool
}

// defaults are for many small databases on a small machine, and for what a
// standby needs. Dynamic shared memory in files goes away with the directory,
// also after a kill.
var defaults = map[string]string{
	"listen_addresses":           "127.0.0.1",
	"unix_socket_directories":    "",
	"max_connections":            "200",
	"shared_buffers":             "32MB",
	"dynamic_shared_memory_type": "mmap",
	"wal_level":                  "replica",
	"max_wal_senders":            "5",
	"wal_keep_size":              "256MB", // a frozen standby finds what it missed
	"fsync":                      "off",
	"jit":                        "off",
	"autovacuum":                 "on",
	"logging_collector":          "off",
	"log_destination":            "stderr",
	"log_line_prefix":            "%m [%p] ",
}

var cron = map[string]string{
	"shared_preload_libraries":    "pg_cron",
	"cron.database_name":          CronDatabase,
	"cron.use_background_workers": "on", // else it connects over TCP, to a port it does not know
	"max_worker_processes":        "24",
}

// Start starts a server, which is stopped and removed after the test. If the
// test has failed, the end of the server's log is in its output.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := newServer(o)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	s.removeAfter(t)
	return s
}

// Shared is one server with no options, for everything in this test process
// that needs no more than a database of its own. It is started by the first who
// asks and ends with the process; nobody may stop, kill or freeze it.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	return s
}

var shared = sync.OnceValues(func() (*Server, error) { return newServer(Options{}) })

// newServer leaves what it has begun in the base directory if it fails; the
// watchdog removes that.
func newServer(o Options) (*Server, error) {
	in, err := setup()
	if err != nil {
		return nil, err
	}
	s := &Server{in: in}
	if s.dir, err = in.directory("server"); err != nil {
		return nil, err
	}
	if err := in.run(nil, "cp", "--archive", "--reflink=auto", in.template, s.data()); err != nil {
		return nil, err
	}
	settings := []map[string]string{defaults}
	if o.Durable {
		settings = append(settings, map[string]string{"fsync": "on"})
	}
	if o.Cron {
		settings = append(settings, cron)
		// pg_cron's launcher wants its database from the first moment on.
		err := in.run([]byte("CREATE DATABASE "+CronDatabase+"\n"),
			filepath.Join(in.bin, "postgres"), "--single", "-D", s.data(), "-c", "fsync=off", "postgres")
		if err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(configuration(append(settings, o.Settings)...))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := s.startAnywhere(); err != nil {
		if o.Cron && strings.Contains(err.Error(), `could not access file "pg_cron"`) {
			return nil, missing("pg_cron")
		}
		return nil, err
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

// startAnywhere starts the server for the first time. Between the moment a port
// is found free and the one it is used, another test process may have taken it.
func (s *Server) startAnywhere() error {
	for try := 1; ; try++ {
		var err error
		if s.port, err = freePort(); err != nil {
			return err
		}
		err = s.start()
		if err == nil || try == 5 || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
}

// start returns when the server accepts connections. The caller holds mu, or is
// the only one who knows the server.
func (s *Server) start() error {
	before, err := os.Stat(s.log())
	var from int64
	if err == nil {
		from = before.Size()
	}
	out, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := s.in.command(filepath.Join(s.in.bin, "postgres"), "-D", s.data(), "-c", "port="+s.port)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = out, out
	if s.proc, err = start(cmd, sigQuit); err != nil {
		return err
	}
	s.frozen = false
	err = until(patience, "start", func() (bool, error) { return s.ready() || s.proc.ended(), nil })
	if err == nil && s.proc.ended() {
		err = fmt.Errorf("the server has ended: %w", s.proc.err)
	}
	if err != nil {
		log, _ := os.ReadFile(s.log())
		return fmt.Errorf("%w; its log:\n%s", err, log[min(from, int64(len(log))):])
	}
	return nil
}

// ready reports what the server has written into its pid file: the pid in the
// first line, its state in the last one. pg_ctl looks there too; a connection
// would leave an error in the log for every try.
func (s *Server) ready() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return lines[0] == fmt.Sprint(s.proc.pid) && strings.TrimSpace(lines[len(lines)-1]) == "ready"
}

// removeAfter ends the server with the test. What it has written is not kept, so
// it need not stop tidily.
func (s *Server) removeAfter(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(s.Log()), "\n")
			t.Logf("the end of the log of %s:\n%s", s.dir, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.end(); err != nil {
			t.Error("pgtest:", err)
		}
	})
}

func (s *Server) end() error {
	if !s.proc.ended() {
		if s.frozen {
			if err := s.proc.thaw(); err != nil {
				return err
			}
		}
		if err := s.proc.stop(sigQuit); err != nil {
			return err
		}
	}
	s.forget()
	return os.RemoveAll(s.dir)
}

// forget frees the segment of shared memory that a killed server leaves behind,
// by which the next one sees that nobody is left. The system has 4096 of them.
// Its id is in the pid file, which a server that stopped has removed itself.
func (s *Server) forget() {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return
	}
	if lines := strings.Split(string(text), "\n"); len(lines) > 6 {
		if f := strings.Fields(lines[6]); len(f) == 2 {
			_ = exec.Command("ipcrm", "-m", f[1]).Run() // gone already if the machine was faster
		}
	}
}

// Addr is where the server listens, as host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL is what a client connects to, as the superuser.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Database makes a database and returns its URL. It is dropped after the test,
// whoever is still connected, if the server runs then. Neither waits for a
// standby.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.next.Add(1))
	admin := s.URL("postgres") + "&synchronous_commit=local"
	Exec(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		s.mu.Lock()
		up := !s.frozen && !s.proc.ended()
		s.mu.Unlock()
		if up {
			Exec(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		}
	})
	return s.URL(name)
}

// Log is what the server has logged so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// through is the URL with another address in it.
func through(rawURL, addr string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic("pgtest: " + err.Error()) // it comes from this package
	}
	u.Host = addr
	return u.String()
}

// Exec runs one or more statements on a connection of its own. Without
// arguments they are sent as they are, in one message. It gives up after a
// minute; pgx then asks the server to cancel, which also ends a commit's wait
// for a standby, so do not commit with it where nobody can answer.
func Exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	err := connected(url, func(ctx context.Context, c *pgx.Conn) error {
		if len(args) == 0 {
			_, err := c.PgConn().Exec(ctx, sql).ReadAll()
			return err
		}
		_, err := c.Exec(ctx, sql, stateless(args)...)
		return err
	})
	if err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

// Value is the one column of the one row that the query returns, over a
// connection of its own, as for Exec.
func Value[T any](t testing.TB, url, sql string, args ...any) T {
	t.Helper()
	var v T
	err := connected(url, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, sql, stateless(args)...).Scan(&v)
	})
	if err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
	return v
}

// stateless makes pgx do without a prepared statement, which a transaction over
// PgBouncer may not find again.
func stateless(args []any) []any { return append([]any{pgx.QueryExecModeExec}, args...) }

func connected(url string, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	err = do(ctx, c)
	// Closing after an answer is a courtesy to the server.
	_ = c.Close(ctx)
	return err
}
