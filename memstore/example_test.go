package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/memstore"
)

// A claim, its completion, and what the next caller with the same key finds.
// Applications use the engine, which does these steps and decides between them.
func Example() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{})
	defer store.Close()

	var index counterfoil.IndexKey
	claim := func() *counterfoil.Draft {
		return &counterfoil.Draft{
			Record: counterfoil.Record{
				ID:        index.ID("acme", "payments", "order-17"),
				Operation: 1,
				State:     counterfoil.InProgress,
				Attempt:   1,
				Token:     counterfoil.NewToken(),
			},
			Stamps: counterfoil.Stamps{
				CreatedAt:  counterfoil.In(0),
				LeaseUntil: counterfoil.In(30 * time.Second),
			},
		}
	}
	first, err := store.Create(ctx, claim())
	if err != nil {
		panic(err)
	}
	fmt.Println("first caller:", first.Created)

	done := first.Record
	done.State = counterfoil.Completed
	_, err = store.Update(ctx, &counterfoil.Write{
		Record:   done,
		IfRev:    done.Rev,
		IfToken:  done.Token,
		Response: []byte("201 created"),
		Stamps: counterfoil.Stamps{
			SettledAt:   counterfoil.In(0),
			ReplayUntil: counterfoil.In(24 * time.Hour),
			Horizon:     counterfoil.In(9 * 24 * time.Hour),
		},
	})
	if err != nil {
		panic(err)
	}

	second, err := store.Create(ctx, claim())
	if err != nil {
		panic(err)
	}
	answer, err := store.Response(ctx, second.Record.ID, second.Record.Rev)
	if err != nil {
		panic(err)
	}
	fmt.Printf("second caller: %t, %s: %s\n", second.Created, second.Record.State, answer)
	// Output:
	// first caller: true
	// second caller: false, completed: 201 created
}
