package pgtest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Standby starts a server that follows this one, which is streaming to it by
// the time it returns. The name is its application_name, which is what
// Synchronous speaks of: a plain lower-case word. It is readable, and ends with
// the test.
func (s *Server) Standby(t testing.TB, name string) *Server {
	t.Helper()
	b, err := s.standby(name)
	if err != nil {
		t.Fatalf("pgtest: standby %s: %v", name, err)
	}
	b.removeAfter(t)
	err = until(patience, "streaming", func() (bool, error) {
		return Value[bool](t, s.URL("postgres"),
			"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming')", name), nil
	})
	if err != nil {
		t.Fatalf("pgtest: standby %s: %v", name, err)
	}
	// The copy has its primary's standbys too, and would wait for them once it is
	// promoted. No transaction is written for this.
	Exec(t, b.URL("postgres"), "ALTER SYSTEM RESET synchronous_standby_names")
	Exec(t, b.URL("postgres"), "SELECT pg_reload_conf()")
	return b
}

func (s *Server) standby(name string) (*Server, error) {
	b := &Server{in: s.in}
	var err error
	if b.dir, err = s.in.directory(name); err != nil {
		return nil, err
	}
	from := fmt.Sprintf("host=127.0.0.1 port=%s user=postgres application_name=%s", s.port, name)
	err = s.in.run(nil, filepath.Join(s.in.bin, "pg_basebackup"), "--dbname", from, "--pgdata", b.data(),
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	if err != nil {
		return nil, err
	}
	return b, b.startAnywhere()
}

// Promote makes a standby a primary, and returns when it can be written to. It
// waits for no standby of its own. Nobody tells the old primary: kill or freeze
// it before, unless two of them are the fault you are after.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if !Value[bool](t, s.URL("postgres"), "SELECT pg_promote(true, $1)", int(patience.Seconds())) {
		t.Fatal("pgtest: promote: not in time")
	}
	err := until(patience, "promote", func() (bool, error) {
		return !Value[bool](t, s.URL("postgres"), "SELECT pg_is_in_recovery()"), nil
	})
	if err != nil {
		t.Fatal("pgtest:", err)
	}
}

// several is a list of standbys of which the commit waits for so many.
var several = regexp.MustCompile(`(?i)^(?:ANY\s+|FIRST\s+)?(\d+)\s*\(`)

// Synchronous sets synchronous_standby_names, for example to "s1" or to
// "ANY 1 (s1, s2)", and returns when commits wait for them. With "" they wait
// for nobody any more; those that wait already are let go.
func (s *Server) Synchronous(t testing.TB, names string) {
	t.Helper()
	url := s.URL("postgres")
	Exec(t, url, "ALTER SYSTEM SET synchronous_standby_names = '"+strings.ReplaceAll(names, "'", "''")+"'")
	Exec(t, url, "SELECT pg_reload_conf()")
	want := 1
	if m := several.FindStringSubmatch(names); m != nil {
		want, _ = strconv.Atoi(m[1])
	}
	err := until(patience, "synchronous", func() (bool, error) {
		set := Value[string](t, url, "SELECT current_setting('synchronous_standby_names')")
		n := Value[int](t, url, "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')")
		return set == names && (names == "" || n >= want), nil
	})
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	// It is the checkpointer that tells everybody to wait, when it gets to read
	// the new setting: nothing shows that it has. The postmaster had signalled it
	// before it accepted the latest connection, so it reads the setting at the
	// latest between two checkpoints that are asked for now.
	Exec(t, url, "CHECKPOINT")
	Exec(t, url, "CHECKPOINT")
}
