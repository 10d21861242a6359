package fingerprint_test

import (
	"fmt"
	"net/http"

	"github.com/counterfoil/counterfoil/fingerprint"
	"github.com/counterfoil/counterfoil/policy"
)

// A client builds its JSON anew for a retry and stamps the time of sending. The
// policy calls that member volatile, so the retry is the same request; another
// amount is not.
func Example() {
	rule, err := fingerprint.Compile(policy.Fingerprint{
		Ignore:   []string{"$.sent_at"},
		Defaults: []policy.Default{{Path: "$.capture", Value: "true"}},
	}, fingerprint.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	send := func(body string) *fingerprint.Request {
		return &fingerprint.Request{
			Method: "POST", Path: "/v1/payments/p1/capture",
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   []byte(body),
		}
	}
	first, _ := rule.Sum(fingerprint.Current, send(`{"amount": 100, "sent_at": "10:00:00"}`))
	retry, _ := rule.Sum(fingerprint.Current, send(`{"sent_at":"10:00:07","capture":true,"amount":100.0}`))
	other, _ := rule.Sum(fingerprint.Current, send(`{"amount": 101, "sent_at": "10:00:00"}`))
	fmt.Println("retry:", first == retry)
	fmt.Println("other:", first == other)
	// Output:
	// retry: true
	// other: false
}

func ExampleRule_Explain() {
	rule, err := fingerprint.Compile(policy.Fingerprint{Headers: []string{"Api-Version"}}, fingerprint.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	parts, err := rule.Explain(fingerprint.Current, &fingerprint.Request{
		Method: "POST", Path: "/pay", RawQuery: "to=alice&dry",
		Header: http.Header{"Content-Type": {"Application/JSON; charset=utf-8"}},
		Body:   []byte(`{"to": "\u0061lice", "amount": 1.50}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range parts {
		fmt.Printf("%s: %s\n", p.Tag, p.Text)
	}
	// Output:
	// rules: counterfoil fingerprint 1
	// method: POST
	// path: /pay
	// query-name: dry
	// query-name: to
	// query-value: alice
	// header-name: Api-Version
	// media-type: application/json
	// json: {"amount":15e-1,"to":"alice"}
}
