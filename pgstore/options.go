package pgstore

import (
	"fmt"
	"log/slog"
	"regexp"
)

// SchemaVersion is the version of the tables that this package works with: the
// number of the newest file of package pgstore/migrate.
const SchemaVersion = 1

// DefaultSchema is where the tables are when nothing else is said.
const DefaultSchema = "public"

// Options of [Open]. The zero value works.
type Options struct {
	// Schema holds the tables; "" stands for [DefaultSchema].
	Schema string
	// Logger hears of what repairs itself; nil discards it.
	Logger *slog.Logger
	// AcceptLoss opens a server that may lose what it has acknowledged (fsync is
	// off): durability class C.
	AcceptLoss bool
	// Workers is how many batches of writes may be under way at once; 0 stands
	// for 2. There are as many for reads. More gain nothing (performance.md).
	Workers int
	// Batch is the most steps that go into one transaction; 0 stands for 256.
	// Each new key takes an entry of the server's lock table until it ends.
	Batch int
}

// schemaPattern keeps names that need no escaping inside quotes.
var schemaPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// QuoteSchema returns the quoted identifier of a schema, and an error for a
// name that this package does not take; "" stands for [DefaultSchema].
func QuoteSchema(name string) (string, error) {
	if name == "" {
		name = DefaultSchema
	}
	if !schemaPattern.MatchString(name) {
		return "", fmt.Errorf("schema %q: use a letter or underscore, then letters, digits, underscores and hyphens, at most 63 in all", name)
	}
	return `"` + name + `"`, nil
}
