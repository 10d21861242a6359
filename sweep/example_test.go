package sweep_test

import (
	"context"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
	"github.com/counterfoil/counterfoil/sweep"
)

// One pass, as cron would make it. A service calls Run instead.
func ExampleWorker_Once() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{})
	engine, err := counterfoil.Open(ctx, store, rules(1, time.Hour), counterfoil.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := sweep.New(engine, sweep.Options{Limit: 1000}).Once(ctx)
	if err != nil {
		fmt.Println(err) // records are left over unless report.Complete
		return
	}
	last, err := sweep.LastRun(ctx, store)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("deleted %d, complete %t, noted %t\n", report.Deleted(), report.Complete, !last.Run.IsZero())
	// Output: deleted 0, complete true, noted true
}
