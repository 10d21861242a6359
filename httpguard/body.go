package httpguard

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
)

// firstRead is the most that is set aside for a body before any of it came:
// ten thousand slow callers must not hold ten thousand times max_request.
const firstRead = 16 << 10

// readBody reads the whole body, up to limit bytes, into room if it fits.
// Nothing is claimed unless it came whole (dangers.md row B02).
func readBody(r *http.Request, limit int64, room []byte) ([]byte, *Problem) {
	if r.ContentLength > limit {
		// Before the first read, and so before "100 Continue" (row H12).
		return nil, tooLarge()
	}
	if r.PostForm != nil || r.MultipartForm != nil {
		return nil, invalidStatus(http.StatusInternalServerError, "the body was read before the guard could; put the guard outside of what parses forms")
	}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	buf := room[:0]
	// One byte more than is expected tells the end without another allocation.
	if r.ContentLength >= int64(len(room)) {
		buf = make([]byte, 0, min(r.ContentLength+1, firstRead))
	}
	for {
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, tooLarge()
		}
		switch {
		case err == io.EOF:
			if r.ContentLength >= 0 && int64(len(buf)) != r.ContentLength {
				return nil, invalidRequest("the body is shorter than Content-Length says")
			}
			return buf, nil
		case err != nil:
			return nil, unreadBody(err)
		}
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, cap(buf))
		}
	}
}

func tooLarge() *Problem {
	return &Problem{Code: ProblemBodyTooLarge, Detail: "the body is larger than this operation accepts; nothing was attempted"}
}

func unreadBody(err error) *Problem {
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return invalidStatus(http.StatusRequestTimeout, "the body did not come in time; nothing was attempted")
	}
	return invalidRequest("the body could not be read whole; nothing was attempted")
}
