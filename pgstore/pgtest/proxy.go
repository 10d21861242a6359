package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a server, as a network that can fail. It
// understands enough of PostgreSQL's protocol, without TLS, to tell where the
// answer to a commit ends. All methods may be called from several goroutines.
type Proxy struct {
	target string
	addr   string

	mu       sync.Mutex // guards what follows
	change   *sync.Cond // of frozen, and of connections that end
	listener net.Listener
	end      context.CancelFunc // of the listener and of its connections
	running  sync.WaitGroup     // they, too
	frozen   bool
	drop     int // answers to commits still to lose
}

// NewProxy starts a proxy in front of the address of a Server, a Bouncer or
// another Proxy. It ends with the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	p := &Proxy{target: addr}
	p.change = sync.NewCond(&p.mu)
	port, err := freePort()
	if err == nil {
		p.addr = net.JoinHostPort("127.0.0.1", port)
		err = p.open()
	}
	if err != nil {
		t.Fatal("pgtest: proxy:", err)
	}
	t.Cleanup(p.Cut)
	return p
}

// Addr is where it listens, as host:port.
func (p *Proxy) Addr() string { return p.addr }

// Through is the URL of a database of the server, by way of the proxy.
func (p *Proxy) Through(url string) string { return through(url, p.addr) }

// Cut closes all connections, on both sides, and refuses new ones. Nothing
// passes after it has returned.
func (p *Proxy) Cut() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
		p.end()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// Heal accepts connections again, after Cut.
func (p *Proxy) Heal(t testing.TB) {
	t.Helper()
	if err := p.open(); err != nil {
		t.Fatal("pgtest: proxy:", err)
	}
}

// Freeze stops forwarding, in both directions, and closes nothing: both sides
// see a network that has gone silent, and so does who connects now. What was
// sent meanwhile arrives after Thaw, also from a client that has given up: a
// commit that comes late.
func (p *Proxy) Freeze() { p.setFrozen(true) }

// Thaw goes on forwarding, after Freeze.
func (p *Proxy) Thaw() { p.setFrozen(false) }

func (p *Proxy) setFrozen(to bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = to
	p.change.Broadcast()
}

// DropReplies makes the next n commits lose their answers: the server's reply is
// thrown away once it is complete, so that the commit has happened, and the
// connection is closed on both sides. A reply to a commit is one after which the
// session is in no transaction and some statement has run; so it is that of a
// single SELECT as well, but neither of ROLLBACK nor of a statement within a
// transaction.
func (p *Proxy) DropReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = n
}

func (p *Proxy) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return fmt.Errorf("%s is open already", p.addr)
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.listener, p.end = l, cancel
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // Cut
			}
			p.running.Go(func() { p.serve(ctx, c) })
		}
	})
	return nil
}

// serve forwards one connection until either side closes, or ctx ends.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
		p.mu.Lock() // so that nobody checks before and waits after
		p.change.Broadcast()
		p.mu.Unlock()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		defer cancel()
		p.requests(ctx, server, client)
	})
	both.Go(func() {
		defer cancel()
		p.replies(ctx, client, server)
	})
	both.Wait()
}

// pass waits while the proxy is frozen, and reports whether the connection is
// still to go on.
func (p *Proxy) pass(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && ctx.Err() == nil {
		p.change.Wait()
	}
	return ctx.Err() == nil
}

func (p *Proxy) requests(ctx context.Context, server io.Writer, client io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if !p.pass(ctx) {
			return
		}
		if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// Types of the server's messages, from
// https://www.postgresql.org/docs/15/protocol-message-formats.html
const (
	authentication  = 'R'
	commandComplete = 'C'
	readyForQuery   = 'Z'
	copyIn          = 'G'
	copyOut         = 'H'
	copyBoth        = 'W'
	notification    = 'A'
)

// replies forwards whole messages. While a reply is to be lost it holds them
// back up to ReadyForQuery, which tells what has become of the transaction.
func (p *Proxy) replies(ctx context.Context, client io.Writer, server io.Reader) {
	in := bufio.NewReaderSize(server, 32<<10)
	var held bytes.Buffer
	finished := false // a statement has, other than ROLLBACK, since ReadyForQuery
	for {
		var head [5]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			// What the server said last, and that it has closed.
			if p.pass(ctx) {
				_, _ = client.Write(held.Bytes())
			}
			return
		}
		held.Write(head[:])
		size := int64(binary.BigEndian.Uint32(head[1:])) - 4
		start := held.Len()
		if n, err := io.CopyN(&held, in, max(size, 0)); err != nil || n != size {
			return
		}
		body := held.Bytes()[start:]
		hold := p.dropping()
		switch head[0] {
		case commandComplete:
			finished = finished || !bytes.HasPrefix(body, []byte("ROLLBACK"))
		case readyForQuery:
			if finished && bytes.Equal(body, []byte("I")) && p.lose() {
				return
			}
			finished, hold = false, false
		case authentication, copyIn, copyOut, copyBoth:
			hold = false // the client has to answer
		case notification:
			hold = hold && start > len(head) // else the client has not asked
		}
		if hold || in.Buffered() > 0 && held.Len() < 64<<10 {
			continue
		}
		if !p.pass(ctx) {
			return
		}
		if _, err := client.Write(held.Bytes()); err != nil {
			return
		}
		held.Reset()
	}
}

func (p *Proxy) dropping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop > 0
}

// lose takes one of the answers that are to be lost.
func (p *Proxy) lose() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drop == 0 {
		return false
	}
	p.drop--
	return true
}
