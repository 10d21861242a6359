module github.com/counterfoil/counterfoil/examples/echo

go 1.26

require (
	github.com/counterfoil/counterfoil v0.0.0
	github.com/counterfoil/counterfoil/httpguard v0.0.0
	github.com/labstack/echo/v4 v4.16.0
)

require (
	github.com/counterfoil/counterfoil/fingerprint v0.0.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/labstack/gommon v0.5.0 // indirect
	github.com/mattn/go-colorable v0.1.15 // indirect
	github.com/mattn/go-isatty v0.0.22 // indirect
	github.com/theory/jsonpath v0.12.3 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace (
	github.com/counterfoil/counterfoil => ../../
	github.com/counterfoil/counterfoil/fingerprint => ../../fingerprint
	github.com/counterfoil/counterfoil/httpguard => ../../httpguard
)
