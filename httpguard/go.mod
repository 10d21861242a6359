module github.com/counterfoil/counterfoil/httpguard

go 1.26

require (
	github.com/counterfoil/counterfoil v0.0.0
	github.com/counterfoil/counterfoil/fingerprint v0.0.0
	github.com/dunglas/httpsfv v1.1.2
	go.uber.org/goleak v1.3.0
)

require (
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/theory/jsonpath v0.12.3 // indirect
)

replace (
	github.com/counterfoil/counterfoil => ../
	github.com/counterfoil/counterfoil/fingerprint => ../fingerprint
)
