package httpguard

import (
	"net/url"
	"path"
	"strings"
)

// clean takes dot segments and doubled slashes out of a decoded path, and the
// slash at its end; "/" becomes empty.
func clean(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	if p = path.Clean(p); p == "/" {
		return ""
	}
	return p
}

// stripParams takes the path parameters out that some servers ignore: /pay;x=1
// is /pay to them (dangers.md row U06).
func stripParams(p string) string {
	if !strings.Contains(p, ";") {
		return p
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// escaped is the URL of a decoded path.
func escaped(p string) *url.URL { return &url.URL{Path: p} }

// lowerHost is a host as ServeMux patterns are compared here: lower case and
// without the root's dot.
func lowerHost(host string) string {
	h := strings.ToLower(host)
	if name, port, ok := strings.Cut(h, ":"); ok && !strings.HasPrefix(h, "[") {
		if t := strings.TrimSuffix(name, "."); t != name {
			return t + ":" + port
		}
		return h
	}
	return strings.TrimSuffix(h, ".")
}

// expand fills a resource template such as /v1/payments/{payment} with path
// values. It returns "" when one of them is empty.
func expand(template string, value func(string) string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(template, '{')
		if open < 0 {
			b.WriteString(template)
			return b.String()
		}
		end := strings.IndexByte(template[open:], '}')
		if end < 0 {
			return ""
		}
		name := strings.TrimSuffix(template[open+1:open+end], "...")
		v := value(name)
		if v == "" {
			return ""
		}
		b.WriteString(template[:open])
		if strings.HasSuffix(template[open+1:open+end], "...") {
			b.WriteString((&url.URL{Path: v}).EscapedPath())
		} else {
			b.WriteString(url.PathEscape(v))
		}
		template = template[open+end+1:]
	}
}

// localResource is the path of a reference that points at the origin of the
// request, or "". Anything else is never kept: a caller that follows it would
// leave this server.
func localResource(ref, host, base string) string {
	if ref == "" {
		return ""
	}
	u, err := url.Parse(ref)
	if err != nil || !validValue(ref) || strings.ContainsAny(ref, " \\") || u.User != nil || u.Opaque != "" {
		return ""
	}
	if u.Host != "" {
		if !strings.EqualFold(u.Host, host) || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
			return ""
		}
	} else if u.Scheme != "" {
		return ""
	}
	if u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		u = (&url.URL{Path: base}).ResolveReference(u)
	}
	p := u.EscapedPath()
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return ""
	}
	if u.RawQuery != "" {
		p += "?" + u.RawQuery
	}
	return p
}
