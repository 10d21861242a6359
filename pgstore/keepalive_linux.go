package pgstore

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// deadAfter is when the kernel gives up a connection whose other side no longer
// acknowledges: the calls on it have no deadline of their own.
const deadAfter = 10 * time.Second

// keepAlive makes the kernel notice a dead peer, idle or not.
func keepAlive(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: deadAfter / 2, Interval: deadAfter / 5, Count: 3})
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter/time.Millisecond))
	})
}
