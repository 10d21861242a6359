package fingerprint

import "errors"

var (
	// ErrTooLarge is returned when a compressed body grows beyond
	// [Options.MaxBody] while it is decoded. The door answers 413 and makes no
	// claim (dangers.md row B04).
	ErrTooLarge = errors.New("decoded body too large")

	// ErrVersion is returned when a sum is asked for under rules that this
	// program does not know, as for a record that a newer one wrote. The door
	// answers 503: such a record is never a new request (cases.md C68).
	ErrVersion = errors.New("unknown fingerprint version")
)
