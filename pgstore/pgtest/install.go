package pgtest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// install is what the servers of one test process have in common.
type install struct {
	bin      string // the folder of initdb, postgres and pg_basebackup
	account  account
	base     string // holds the directories of all servers
	template string // a data directory after initdb, never started
	watch    *os.File
}

// account is who the servers run as; the zero value is whoever runs the test.
type account struct {
	other    bool
	uid, gid int
}

// setup finds the binaries and runs initdb, which takes a second or two, once
// for each test process: servers begin with a copy.
var setup = sync.OnceValues(newInstall)

func newInstall() (_ *install, err error) {
	in := &install{}
	if in.bin, err = binaries(); err != nil {
		return nil, err
	}
	if in.account, err = whose(); err != nil {
		return nil, err
	}
	if in.base, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	if err := in.account.give(in.base); err != nil {
		return nil, err
	}
	if in.watch, err = in.watchdog(); err != nil {
		return nil, err
	}
	in.template = filepath.Join(in.base, "template")
	// Text sorts and compares by its bytes, on every machine alike.
	err = in.run(nil, filepath.Join(in.bin, "initdb"), "--pgdata", in.template, "--no-sync",
		"--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
	return in, err
}

// binaries is the folder of the newest PostgreSQL server that is installed.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian's, which has several side by side
	if err != nil {
		return "", err
	}
	major := func(initdb string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
		return n
	}
	if len(found) > 0 {
		newest := slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
		return filepath.Dir(newest), nil
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", missing("PostgreSQL")
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return "", err
	}
	return filepath.Dir(initdb), nil
}

func missing(what string) error { return fmt.Errorf("%s is not installed: run make setup", what) }

// whose is the account that servers run as.
func whose() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is no other user for it: %w", err)
	}
	a := account{other: true}
	if a.uid, err = strconv.Atoi(u.Uid); err != nil {
		return account{}, err
	}
	a.gid, err = strconv.Atoi(u.Gid)
	return a, err
}

func (a account) give(path string) error {
	if !a.other {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// directory makes one for a server.
func (in *install) directory(name string) (string, error) {
	dir, err := os.MkdirTemp(in.base, name+"-")
	if err != nil {
		return "", err
	}
	return dir, in.account.give(dir)
}

// command is a program that runs as the servers' account, in a folder which
// that account may enter. None of the caller's PG* variables reach it.
func (in *install) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = in.base
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + in.base, "LC_ALL=C", "TZ=UTC"}
	in.account.apply(cmd)
	return cmd
}

// run runs a program to its end, with the input if there is one. It keeps its
// thread for as long: see start.
func (in *install) run(input []byte, path string, args ...string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := in.command(path, args...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// freePort is a port that nobody listens on. It is below those that the kernel
// gives to outgoing connections (32768 and up): a server that is down for a
// while must find its port free again, and a client that dials such a port over
// and over ends up connected to itself.
func freePort() (string, error) {
	for range 100 {
		port := strconv.Itoa(15000 + rand.IntN(17000))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("found no free port in 100 tries")
}

// configuration is what a postgresql.conf gets appended; of two values the
// later one counts there.
func configuration(settings ...map[string]string) []byte {
	all := map[string]string{}
	for _, s := range settings {
		maps.Copy(all, s)
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(all[name], "'", "''"))
	}
	return b.Bytes()
}

// until asks every few milliseconds, for so long.
func until(limit time.Duration, what string, done func() (bool, error)) error {
	end := time.Now().Add(limit)
	for {
		ok, err := done()
		switch {
		case ok:
			return nil
		case time.Now().After(end) && err != nil:
			return fmt.Errorf("%s: not within %s: %w", what, limit, err)
		case time.Now().After(end):
			return fmt.Errorf("%s: not within %s", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
