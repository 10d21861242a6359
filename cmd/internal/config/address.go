package config

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// ParseStore reads the address of a store as the field store: of
// counterfoil.yaml does, with a directory relative to the working directory.
// The error says what to write instead, and never repeats the address, which
// may hold a password.
func ParseStore(address string) (Store, error) {
	r := newReader("")
	r.store("store", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: address})
	if len(r.findings) > 0 {
		f := r.findings[0]
		return Store{}, fmt.Errorf("%s; %s", f.Message, f.Remedy)
	}
	return r.config.Store, nil
}
