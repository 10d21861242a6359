module github.com/counterfoil/counterfoil/fingerprint

go 1.26

require (
	github.com/counterfoil/counterfoil v0.0.0
	github.com/go-json-experiment/json v1.27.2
	github.com/theory/jsonpath v0.12.3
)

replace github.com/counterfoil/counterfoil => ../
