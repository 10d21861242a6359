//go:build !linux

package pgstore

import (
	"net"
	"time"
)

// keepAlive makes the kernel notice a dead peer.
func keepAlive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3})
	}
}
