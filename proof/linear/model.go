// Package linear checks that Create, Update and Get of a store are
// linearizable: that every concurrent history could have happened one call at
// a time (reliability.md, LIN).
package linear

import (
	"errors"
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/counterfoil/counterfoil"
)

// kind is which call was made.
type kind uint8

const (
	create kind = iota
	update
	get
)

// input is one call on one record.
type input struct {
	kind  kind
	id    counterfoil.ID
	rev   uint64            // update: the rev read before
	had   counterfoil.Token // update: the token read before
	token counterfoil.Token // create, update: the token written
}

// output is what the store answered.
type output struct {
	answer answer
	rev    uint64
	token  counterfoil.Token
}

type answer uint8

const (
	wrote    answer = iota // created or updated
	stands                 // create: a record stood; get: found
	notFound               // get, update
	conflict               // update: rev moved, token did not
	fenced                 // update: token changed
	busy                   // another transaction holds it: nothing was written
	unsure                 // could not find out: the call may have happened
)

// standing is the model's whole state of one record.
type standing struct {
	rev   uint64 // 0: absent
	token counterfoil.Token
}

// model is the contract of store.go as a state machine over one record.
var model = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byID := map[counterfoil.ID][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(input).id
			byID[id] = append(byID[id], op)
		}
		out := make([][]porcupine.Operation, 0, len(byID))
		for _, ops := range byID {
			out = append(out, ops)
		}
		return out
	},
	Init: func() []any { return []any{standing{}} },
	Step: func(state, in, out any) []any {
		next := step(state.(standing), in.(input), out.(output))
		states := make([]any, len(next))
		for i, s := range next {
			states[i] = s
		}
		return states
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v → %+v", in, out)
	},
}).ToModel()

// step returns the states in which answering out to in is right.
func step(s standing, in input, out output) []standing {
	var after standing
	var want output
	switch in.kind {
	case create:
		after, want = s, output{stands, s.rev, s.token}
		if s.rev == 0 {
			after = standing{1, in.token}
			want = output{wrote, 1, in.token}
		}
	case update:
		after = s
		switch {
		case s.rev == 0:
			want = output{answer: notFound}
		case s.token != in.had:
			want = output{answer: fenced}
		case s.rev != in.rev:
			want = output{answer: conflict}
		default:
			after = standing{s.rev + 1, in.token}
			want = output{wrote, s.rev + 1, in.token}
		}
	case get:
		after, want = s, output{stands, s.rev, s.token}
		if s.rev == 0 {
			want = output{answer: notFound}
		}
	}
	switch out.answer {
	case busy:
		return []standing{s}
	case unsure:
		return []standing{s, after}
	}
	if out != want {
		return nil
	}
	return []standing{after}
}

// answerOf turns a store's error into the model's answer.
func answerOf(err error) answer {
	switch {
	case errors.Is(err, counterfoil.ErrNotFound):
		return notFound
	case errors.Is(err, counterfoil.ErrConflict):
		return conflict
	case errors.Is(err, counterfoil.ErrFenced):
		return fenced
	case errors.Is(err, counterfoil.ErrBusy):
		return busy
	}
	return unsure
}
