package policyfile_test

import (
	"fmt"

	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/policyfile"
)

// A policy says where its lifetimes come from; nobody types one at a call site.
func ExampleParse() {
	p, err := policyfile.Parse("policy.yaml", []byte(`
version: 1
operations:
  payment_capture:
    match: ["POST /v1/payments/{payment}/capture"]
    scope: {principal: header:X-Account-Id}
    ttl:
      client_retry_budget:
        - {name: sdk, value: 10s, inside: job}
        - {name: job, value: 6h35m30s}
        - {name: webhook, value: 3d}
      reconciliation_cadence: 1h
      safety_margin: 20h
    protect: 90d
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	o := p.Operation("payment_capture")
	fmt.Println("ttl", policy.FormatDuration(o.TTL()), "from", o.Inputs.Dominant())
	fmt.Println("kept", policy.FormatDuration(o.Retention()), "after completion")
	// Output:
	// ttl 3d21h from client_retry_budget (webhook)
	// kept 90d after completion
}

// A refusal names line, column and field, and what to write instead.
func ExampleParse_refused() {
	_, err := policyfile.Parse("policy.yaml", []byte(`
version: 1
operations:
  payment_capture:
    scope: {principal: header:X-Account-Id}
    ttl: {safety_margin: 24h}
    leese: 30s
    wait: 2
`))
	fmt.Println(err)
	// Output:
	// policy.yaml:7:5: operations.payment_capture.leese: unknown field "leese"; did you mean lease?
	// policy.yaml:8:5: operations.payment_capture.wait: "2" has no unit; write 2s, 2m, 2h or 2d
}
