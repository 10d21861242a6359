//go:build !faultpoints

package main

import (
	"github.com/counterfoil/counterfoil/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// step marks a place between two statements, at which the test kills the
// program (step_on.go). In this build it is nothing.
func step(string) {}

func stepping(pool *pgxpool.Pool) pgstore.Beginner { return pool }
