package pgstore

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// Types of the parameters, by their fixed numbers in pg_type.
const (
	oidBool       = 16
	oidBytea      = 17
	oidInt8       = 20
	oidInt2       = 21
	oidInt4       = 23
	oidText       = 25
	oidBoolArray  = 1000
	oidByteaArray = 1001
	oidInt2Array  = 1005
	oidInt4Array  = 1007
	oidTextArray  = 1009
	oidInt8Array  = 1016
)

// An array goes to the server in its binary form, which spares both sides the
// parsing; database/sql gets its text form, which every driver takes.

func arrayHead(b []byte, n int, nulls bool, elem uint32) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0) // no dimension
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, elem)
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	if nulls {
		b = binary.BigEndian.AppendUint32(b, 1)
	} else {
		b = binary.BigEndian.AppendUint32(b, 0)
	}
	b = binary.BigEndian.AppendUint32(b, elem)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // lower bound
}

// int8s is a bigint[].
type int8s []int64

func (a int8s) binary() []byte {
	b := arrayHead(make([]byte, 0, 20+12*len(a)), len(a), false, oidInt8)
	for _, v := range a {
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func (a int8s) text() string { return numbersText(a) }

// int4s is an integer[].
type int4s []int32

func (a int4s) binary() []byte {
	b := arrayHead(make([]byte, 0, 20+8*len(a)), len(a), false, oidInt4)
	for _, v := range a {
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func (a int4s) text() string { return numbersText(a) }

// int2s is a smallint[].
type int2s []int16

func (a int2s) binary() []byte {
	b := arrayHead(make([]byte, 0, 20+6*len(a)), len(a), false, oidInt2)
	for _, v := range a {
		b = binary.BigEndian.AppendUint32(b, 2)
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return b
}

func (a int2s) text() string { return numbersText(a) }

// byteas is a bytea[]; nil is null.
type byteas [][]byte

func (a byteas) binary() []byte { return stringsBinary(a, oidBytea) }

func (a byteas) text() string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	s.WriteByte('{')
	for i, v := range a {
		if i > 0 {
			s.WriteByte(',')
		}
		if v == nil {
			s.WriteString("NULL")
			continue
		}
		s.WriteString(`"\\x`)
		for _, c := range v {
			s.WriteByte(digits[c>>4])
			s.WriteByte(digits[c&15])
		}
		s.WriteByte('"')
	}
	s.WriteByte('}')
	return s.String()
}

// texts is a text[]; nil is null.
type texts [][]byte

func (a texts) binary() []byte { return stringsBinary(a, oidText) }

func (a texts) text() string {
	var s strings.Builder
	s.WriteByte('{')
	for i, v := range a {
		if i > 0 {
			s.WriteByte(',')
		}
		if v == nil {
			s.WriteString("NULL")
			continue
		}
		s.WriteByte('"')
		for _, c := range v {
			if c == '"' || c == '\\' {
				s.WriteByte('\\')
			}
			s.WriteByte(c)
		}
		s.WriteByte('"')
	}
	s.WriteByte('}')
	return s.String()
}

func stringsBinary(a [][]byte, elem uint32) []byte {
	size, nulls := 20, false
	for _, v := range a {
		size += 4 + len(v)
		nulls = nulls || v == nil
	}
	b := arrayHead(make([]byte, 0, size), len(a), nulls, elem)
	for _, v := range a {
		if v == nil {
			b = append(b, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

func numbersText[T int16 | int32 | int64](a []T) string {
	b := []byte{'{'}
	for i, v := range a {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return string(append(b, '}'))
}
