package reconcile_test

import (
	"context"
	"fmt"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/policy"
	"github.com/counterfoil/counterfoil/reconcile"
)

// One pass, as cron would make it. A service calls Run instead.
func ExampleWorker_Once() {
	ctx := context.Background()
	engine, err := counterfoil.Open(ctx, memstore.New(memstore.Options{}), rules(1, policy.DispatchImplicit), counterfoil.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := reconcile.New(engine, reconcile.Options{}).Once(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d abandoned, %d now unknown, %d failed\n", report.Examined, report.Unknown, report.Failed)
	// Output: 0 abandoned, 0 now unknown, 0 failed
}
