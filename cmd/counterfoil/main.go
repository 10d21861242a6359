// Command counterfoil guards effects that must happen at most once, and tends
// the records that prove it. Everything it does is in package cli.
package main

import (
	"os"

	"github.com/counterfoil/counterfoil/cmd/internal/cli"
)

// Set by the linker (Makefile); "dev" and "" in a plain go build.
var version, commit = "dev", ""

func main() {
	os.Exit(cli.Main(version, commit))
}
