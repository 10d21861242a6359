package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BouncerOptions are those of PgBouncer; the zero value works.
type BouncerOptions struct {
	// PoolSize is how many connections to the server each database gets, for all
	// clients together. Default 20, as is PgBouncer's own.
	PoolSize int
}

// Bouncer is a PgBouncer in front of a server.
type Bouncer struct {
	dir, port string
}

// PgBouncer starts one in transaction mode, in which a client has a connection
// to the server for one transaction only. It passes everybody on as the
// superuser, and like the installed default it refuses a client that asks for
// parameters it does not know. It ends with the test.
func PgBouncer(t testing.TB, s *Server, o BouncerOptions) *Bouncer {
	t.Helper()
	if o.PoolSize == 0 {
		o.PoolSize = 20
	}
	b, p, err := newBouncer(s, o)
	if err != nil {
		t.Fatal("pgtest: PgBouncer:", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of PgBouncer:\n%s", b.Log())
		}
		if err := p.kill(); err != nil {
			t.Error("pgtest: PgBouncer:", err)
		}
		if err := os.RemoveAll(b.dir); err != nil {
			t.Error("pgtest: PgBouncer:", err)
		}
	})
	return b
}

func newBouncer(s *Server, o BouncerOptions) (*Bouncer, *process, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/pgbouncer") // not in everybody's PATH
	}
	if err != nil {
		return nil, nil, missing("PgBouncer")
	}
	b := &Bouncer{}
	if b.dir, err = s.in.directory("pgbouncer"); err != nil {
		return nil, nil, err
	}
	if b.port, err = freePort(); err != nil {
		return nil, nil, err
	}
	ini := filepath.Join(b.dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`, s.port, b.port, o.PoolSize)
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	out, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	cmd := s.in.command(path, ini)
	cmd.Dir = b.dir
	cmd.Stdout, cmd.Stderr = out, out
	p, err := start(cmd, sigQuit)
	if err != nil {
		return nil, nil, err
	}
	err = until(patience, "start", func() (bool, error) {
		c, err := net.Dial("tcp", b.Addr())
		if err == nil {
			c.Close()
		}
		return err == nil || p.ended(), err
	})
	if err == nil && p.ended() {
		err = fmt.Errorf("it has ended: %w\n%s", p.err, b.Log())
	}
	return b, p, err
}

// Addr is where it listens, as host:port.
func (b *Bouncer) Addr() string { return net.JoinHostPort("127.0.0.1", b.port) }

// Through is the URL of a database of the server, by way of the bouncer.
func (b *Bouncer) Through(url string) string { return through(url, b.Addr()) }

// Log is what it has logged so far.
func (b *Bouncer) Log() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
