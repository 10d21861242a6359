// Package fingerprint reduces a request to its canonical form and digests it,
// so that a key stays bound to the request it was first sent with.
//
// Two requests with one fingerprint are the same request: the second may be
// answered with the first one's response. So the form leaves out only what
// cannot change the meaning, and where it might lose a difference it counts the
// bytes as they were sent. A false match pays the wrong bill; a false mismatch
// is a 422.
//
// # Form, version 1
//
// The form is a sequence of parts. A part is its [Tag] (one byte), the length
// of its text in bytes (unsigned varint, as in encoding/binary), and the text.
// The fingerprint is the first 16 bytes of the sequence's SHA-256, or of its
// HMAC-SHA256 where [Options.Secret] is set. The parts, in order:
//
//   - rules: the text "counterfoil fingerprint 1".
//   - method: as sent.
//   - path, or path-raw.
//   - query-name and query-value, or query-raw; nothing for an empty query.
//   - header-name and header-value, for each header field of the policy.
//   - media-type with param-name and param-value, or media-raw; nothing
//     where there is no Content-Type.
//   - the body.
//
// Nothing else counts: not the host, the scheme or the key, and no header
// field that the policy does not name, so that a refreshed token, a date or a
// trace id does not make another request (cases.md C66; dangers.md row H16).
//
// # Path
//
// The concrete path, normalised as RFC 3986 §6.2.2 says: %7E and ~ are equal,
// %2f and %2F are equal, an empty path is "/", and bytes that may not stand in
// a URL equal their escapes. Escapes of reserved characters stay apart from the
// characters, so %2F is not a slash and %3B is not a semicolon. Dot segments
// and doubled slashes are kept; the door refuses them. A path with a bad escape
// counts as sent.
//
// # Query
//
// Pairs of name and value, split at &, decoded (%XX, and + for a space) and
// sorted by name. The order of values under one name counts, and so does their
// number. A name without = ("a") differs from one with an empty value ("a=") and
// has no query-value. An empty pair, as "a=1&" has, counts. A query with a bad
// escape, a bare semicolon or more than 10,000 pairs counts as sent (cases.md
// C60; dangers.md rows U07 to U10).
//
// # Header fields
//
// The policy's fields, sorted by name, with all their lines in order, as sent.
// An absent field has a name part and no value; an empty one has an empty value.
//
// # Media type
//
// The type in lower case, then its parameters sorted by name. White space,
// quotes and charset=utf-8 do not count, nor does the boundary of a multipart
// type. All other parameters do. A value that does not parse, that holds a
// backslash or an asterisk (RFC 2231), or that comes in several lines counts as
// sent. The type counts even where the body is empty (dangers.md row H19).
//
// # Body
//
// No body, an empty body and Content-Length: 0 are one: the part "empty".
//
// Content-Encoding gzip (or x-gzip) is undone first, up to [Options.MaxBody];
// then the body counts as if it had been sent plain, whatever compressed it
// (cases.md C23). Beyond the limit the sum is [ErrTooLarge]. A body that is not
// sound gzip, and any other coding, counts as sent, with the names of the
// codings.
//
// JSON (application/json and types that end in +json) counts in canonical form:
//
//   - members sorted by name, as UTF-16 (RFC 8785 §3.2.3); order in arrays kept;
//   - no white space; strings in the shortest escapes; no Unicode
//     normalisation, so NFC and NFD differ (cases.md C19);
//   - numbers exact: sign, digits without zeros at either end, "e" and the power
//     of ten unless it is zero; every zero is "0". 1, 1.0, 1e0 and 10e-1 are
//     equal, 2^53 and 2^53+1 are not (cases.md C18). This is where the form
//     leaves RFC 8785, which rounds to float64.
//
// JSON counts as sent (json-raw) where it is broken, has duplicate members,
// invalid UTF-8, lone surrogates, an exponent of more than 18 digits or more
// than 256 levels of nesting, or where its charset is neither UTF-8 nor ASCII.
//
// The policy's rules for JSON bodies work on the canonical form. First come
// defaults: a missing member gets its value, outer members first; missing
// objects around it are made, and what is no object stays as it is. Then fields
// and ignore are looked up. With fields, the form is each chosen value
// after its normalized path (RFC 9535 §2.7), sorted by path, without what is
// ignored; a value inside another chosen value is not repeated. Where none of
// the fields is there, the whole body counts. Without fields, it is the whole
// body without what is ignored; array elements behind an ignored one move up.
// Filters compare numbers as float64. The rules do not touch JSON that counts
// as sent, nor other bodies.
//
// Forms (application/x-www-form-urlencoded) count as pairs, like the query, and
// under the same conditions as sent.
//
// Multipart bodies count as their parts in order, each with its header fields
// sorted by name and its content; the boundary does not count (cases.md C21).
// Content-Type counts as above, Content-Disposition (name, filename) without
// the order of its parameters, other fields as sent. A body that does not
// parse, has text before the first boundary or after the last, or more than
// 10,000 parts counts as sent, with its boundary. A multipart body within a part
// counts as bytes.
//
// All other bodies count as sent.
//
// # Versions
//
// A record keeps the version of its fingerprint. A request is compared with it
// under that version, never under a newer one, and an unknown version is
// [ErrVersion]: a refusal, never a new request (cases.md C68). The sums of a
// version never change; testdata pins them. A change to any rule above is a new
// version beside the old one.
//
//	version  since   what changed
//	1        0.1.0   first
package fingerprint
