module github.com/counterfoil/counterfoil/examples/chi

go 1.26

require (
	github.com/counterfoil/counterfoil v0.0.0
	github.com/counterfoil/counterfoil/httpguard v0.0.0
	github.com/go-chi/chi/v5 v5.5.0
)

require (
	github.com/counterfoil/counterfoil/fingerprint v0.0.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/theory/jsonpath v0.12.3 // indirect
)

replace (
	github.com/counterfoil/counterfoil => ../../
	github.com/counterfoil/counterfoil/fingerprint => ../../fingerprint
	github.com/counterfoil/counterfoil/httpguard => ../../httpguard
)
