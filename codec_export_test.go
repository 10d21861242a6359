package counterfoil

import "encoding/binary"

// AppendCheck ends body with the check that a record at id would have.
func AppendCheck(body []byte, id ID) []byte {
	return binary.LittleEndian.AppendUint16(append([]byte(nil), body...), recordCheck(&id, body))
}
