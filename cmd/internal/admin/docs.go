package admin

import (
	"html/template"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// docsTemplate needs nothing from elsewhere, and no script.
var docsTemplate = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>The whole description: <a href="/v1/openapi.yaml">/v1/openapi.yaml</a>, <a href="/v1/openapi.json">/v1/openapi.json</a> (OpenAPI 3.1).</p>
<table>
{{range .Rows}}<tr><td><code>{{.Method}} {{.Path}}</code></td><td>{{.Summary}}</td></tr>
{{end}}</table>
</html>
`))

type docsRow struct{ Method, Path, Summary string }

// docsPage lists what the API can do, by path.
func docsPage(api *huma.OpenAPI) http.HandlerFunc {
	var page struct {
		Title string
		Rows  []docsRow
	}
	page.Title = api.Info.Title
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		item := api.Paths[path]
		for _, o := range []*huma.Operation{item.Get, item.Post} {
			if o != nil {
				page.Rows = append(page.Rows, docsRow{o.Method, o.Path, o.Summary})
			}
		}
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		_ = docsTemplate.Execute(w, page) // the caller went away
	}
}
