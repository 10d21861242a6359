package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
)

// late is the context of a caller whose time is over and who has not noticed
// yet, as when its goroutine is not scheduled.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }
func (late) Done() <-chan struct{}       { return nil }
func (late) Err() error                  { return nil }

// TestTooLateIsNoAnswer: a step that is dropped since nobody waits for it any
// longer was not done, and nobody may be told that it was.
func TestTooLateIsNoAnswer(t *testing.T) {
	s := open(t, database(t), lossy)
	ctx := late{context.Background()}
	rec := counterfoil.Record{
		ID: counterfoil.ID{1}, Principal: counterfoil.PrincipalDigest{1}, Operation: 1, State: counterfoil.InProgress,
		Attempt: 1, Token: counterfoil.NewToken(), Fingerprint: counterfoil.Fingerprint{Version: 1}, Policy: 1, Dispatched: true,
	}
	stamps := counterfoil.Stamps{CreatedAt: counterfoil.In(0), ClaimedAt: counterfoil.In(0), LeaseUntil: counterfoil.In(time.Minute)}
	st, err := s.Create(ctx, &counterfoil.Draft{Record: rec, Stamps: stamps})
	if !errors.Is(err, counterfoil.ErrUnavailable) || st.Created {
		t.Errorf("create: %+v, %v", st, err)
	}
	if _, err := s.Update(ctx, &counterfoil.Write{Record: rec, IfRev: 1, IfToken: rec.Token, Stamps: stamps}); !errors.Is(err, counterfoil.ErrUnavailable) {
		t.Errorf("update: %v", err)
	}
	if _, err := s.Get(ctx, rec.ID); !errors.Is(err, counterfoil.ErrUnavailable) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Response(ctx, rec.ID, 1); !errors.Is(err, counterfoil.ErrUnavailable) {
		t.Errorf("response: %v", err)
	}
}
