package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
)

// diff lists the fields in which two records differ, one a line; empty when
// they do not. Instants are compared as instants, and no entries are no
// entries, whether the slice is nil or empty.
func diff(got, want counterfoil.Record) string {
	var b strings.Builder
	differ(&b, "", reflect.ValueOf(got), reflect.ValueOf(want))
	return b.String()
}

func differ(b *strings.Builder, path string, got, want reflect.Value) {
	if g, ok := got.Interface().(time.Time); ok {
		if w := want.Interface().(time.Time); !g.Equal(w) {
			fmt.Fprintf(b, "  %s: got %s, want %s\n", path, g.Format(time.RFC3339Nano), w.Format(time.RFC3339Nano))
		}
		return
	}
	switch got.Kind() {
	case reflect.Struct:
		for i := range got.NumField() {
			differ(b, strings.TrimPrefix(path+"."+got.Type().Field(i).Name, "."), got.Field(i), want.Field(i))
		}
	case reflect.Slice:
		if got.Len() != want.Len() {
			fmt.Fprintf(b, "  %s: got %d entries, want %d\n", path, got.Len(), want.Len())
			return
		}
		for i := range got.Len() {
			differ(b, fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i))
		}
	default:
		if g, w := got.Interface(), want.Interface(); g != w {
			fmt.Fprintf(b, "  %s: got %v, want %v\n", path, g, w)
		}
	}
}

// stub is what of a record a tombstone must keep; rev and the instants of its
// attempts are left out, since a store may let them go when it makes one.
func stub(r counterfoil.Record) counterfoil.Record {
	r = r.Clone()
	r.Rev, r.Token, r.Reference, r.HasResponse = 0, counterfoil.Token{}, "", false
	r.Dispatched, r.Proof = false, counterfoil.ProofNone
	r.ClaimedAt, r.LeaseUntil, r.QuietAt = time.Time{}, time.Time{}, time.Time{}
	r.FirstDispatch, r.LastDispatch, r.ReplayUntil = time.Time{}, time.Time{}, time.Time{}
	return r
}
