module github.com/counterfoil/counterfoil/examples/ledger

go 1.26.0

require (
	github.com/counterfoil/counterfoil v0.0.0
	github.com/counterfoil/counterfoil/fingerprint v0.0.0
	github.com/counterfoil/counterfoil/httpguard v0.0.0
	github.com/counterfoil/counterfoil/pgstore v0.0.0
	github.com/counterfoil/counterfoil/policyfile v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/pressly/goose/v3 v3.30.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/theory/jsonpath v0.12.3 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace (
	github.com/counterfoil/counterfoil => ../../
	github.com/counterfoil/counterfoil/fingerprint => ../../fingerprint
	github.com/counterfoil/counterfoil/httpguard => ../../httpguard
	github.com/counterfoil/counterfoil/pgstore => ../../pgstore
	github.com/counterfoil/counterfoil/policyfile => ../../policyfile
)
