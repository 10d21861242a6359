package httpguard

// DecodeResponse and EncodeResponse show the stored form to its tests.
func DecodeResponse(b []byte) (*Stored, error) {
	s, err := decode(b, nil, 0)
	return &s, err
}

// Stored is the decoded form.
type Stored = stored

// Encode is the inverse of DecodeResponse.
func (s *stored) Encode() []byte { return s.encode() }
