package linear

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/counterfoil/counterfoil"
)

// workload is a random history to be run against a store.
type workload struct {
	seed    uint64
	clients int
	calls   int // per client
	ids     int // few: more contention
}

// record runs the workload and returns its history. Each client remembers the
// last rev and token it saw of each record, so that its updates are sometimes
// right, sometimes stale and sometimes foreign.
func record(ctx context.Context, s counterfoil.Store, w workload) []porcupine.Operation {
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		clock   atomic.Int64
		wg      sync.WaitGroup
	)
	ids := make([]counterfoil.ID, w.ids)
	for i := range ids {
		ids[i] = counterfoil.IndexKey{}.ID("linear", "linear", counterfoil.Key(rune('a'+i%26))+counterfoil.Key(rune('a'+i/26)))
	}
	for client := range w.clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(w.seed, uint64(client)))
			seen := make(map[counterfoil.ID]standing, len(ids))
			mine := make([]porcupine.Operation, 0, w.calls)
			for range w.calls {
				in := input{kind: kind(rng.IntN(3)), id: ids[rng.IntN(len(ids))]}
				was := seen[in.id]
				if in.kind == update && was.rev == 0 {
					in.kind = get
				}
				in.rev, in.had, in.token = was.rev, was.token, was.token
				// A third of the updates open another attempt; every create does.
				if in.kind == create || in.kind == update && rng.IntN(3) == 0 {
					in.token = counterfoil.NewToken()
				}
				call := clock.Add(1)
				out := do(ctx, s, in)
				mine = append(mine, porcupine.Operation{
					ClientId: client, Input: in, Call: call, Output: out, Return: clock.Add(1),
				})
				if out.answer == wrote || out.answer == stands {
					seen[in.id] = standing{out.rev, out.token}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			history = append(history, mine...)
		})
	}
	wg.Wait()
	// A call that could not find out may take effect at any later time.
	end := clock.Add(1)
	for i := range history {
		if history[i].Output.(output).answer == unsure {
			history[i].Return = end
		}
	}
	return history
}

func do(ctx context.Context, s counterfoil.Store, in input) output {
	rec := counterfoil.Record{
		ID: in.id, Principal: counterfoil.PrincipalDigest{1}, Operation: 1, State: counterfoil.InProgress,
		Attempt: 1, Token: in.token, Fingerprint: counterfoil.Fingerprint{Version: 1}, Policy: 1, Dispatched: true,
	}
	stamps := counterfoil.Stamps{LeaseUntil: counterfoil.In(time.Minute)}
	switch in.kind {
	case create:
		stamps.CreatedAt, stamps.ClaimedAt = counterfoil.In(0), counterfoil.In(0)
		st, err := s.Create(ctx, &counterfoil.Draft{Record: rec, Stamps: stamps})
		if err != nil {
			return output{answer: answerOf(err)}
		}
		out := output{stands, st.Record.Rev, st.Record.Token}
		if st.Created {
			out.answer = wrote
		}
		return out
	case update:
		rec.CreatedAt, rec.ClaimedAt = time.UnixMilli(1), time.UnixMilli(1)
		snap, err := s.Update(ctx, &counterfoil.Write{Record: rec, IfRev: in.rev, IfToken: in.had, Stamps: stamps})
		if err != nil {
			return output{answer: answerOf(err)}
		}
		return output{wrote, snap.Record.Rev, snap.Record.Token}
	}
	snap, err := s.Get(ctx, in.id)
	if err != nil {
		return output{answer: answerOf(err)}
	}
	return output{stands, snap.Record.Rev, snap.Record.Token}
}
