package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tables are made at each start; two nodes that start at once take turns.
// Nothing in them knows of keys, and nothing stops a transfer from being made
// twice: that is the claim's work alone.
const tables = `
SELECT pg_advisory_xact_lock(7215094);
CREATE TABLE IF NOT EXISTS accounts (
	name    text PRIMARY KEY,
	opening bigint NOT NULL,                    -- in cents, as all amounts
	balance bigint NOT NULL CHECK (balance >= 0)
);
CREATE TABLE IF NOT EXISTS entries (            -- two for each transfer
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	transfer text NOT NULL,
	account  text NOT NULL REFERENCES accounts,
	amount   bigint NOT NULL CHECK (amount <> 0), -- below zero: paid
	memo     text NOT NULL,
	at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS entries_transfer ON entries (transfer);
CREATE INDEX IF NOT EXISTS entries_account ON entries (account);
INSERT INTO accounts (name, opening, balance)
	VALUES ('alice', 100000, 100000), ('bob', 100000, 100000), ('carol', 100000, 100000)
	ON CONFLICT DO NOTHING`

// order is what a caller wants done. The account that pays is not in it: that
// is whoever authenticated.
type order struct {
	From   string `json:"-"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
	Memo   string `json:"memo"`
}

// maxBody is as in the policy (max_request).
const maxBody = 16 << 10

func parseOrder(from string, body []byte) (order, error) {
	o := order{From: from}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	switch err := d.Decode(&o); {
	case err != nil:
		return o, fmt.Errorf("the body is no order: %w", err)
	case o.To == "" || o.To == o.From || o.Amount <= 0 || len(o.Memo) > 200:
		return o, errors.New("an order needs another account to pay to, an amount above zero, and a memo of at most 200 bytes")
	}
	return o, nil
}

// transfer is what callers see of one.
type transfer struct {
	Transfer string    `json:"transfer"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	Amount   int64     `json:"amount"`
	Memo     string    `json:"memo,omitempty"`
	At       time.Time `json:"at"`
}

// move does the order in tx, or says why it is declined, having written
// nothing. On an error tx must be rolled back.
//
// It is the effect, for both routes. All it does can be rolled back: it sends
// nothing, and whatever calls out to somebody else has no place in it.
func move(ctx context.Context, tx pgx.Tx, o order) (*result, error) {
	// In the order of the names, so that no two transfers wait for each other.
	rows, err := tx.Query(ctx, "SELECT name, balance FROM accounts WHERE name IN ($1, $2) ORDER BY name FOR UPDATE", o.From, o.To)
	if err != nil {
		return nil, err
	}
	balances := map[string]int64{}
	var name string
	var balance int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &balance}, func() error { balances[name] = balance; return nil }); err != nil {
		return nil, err
	}
	step("accounts locked")
	switch have, ok := balances[o.From]; {
	case !ok || len(balances) < 2:
		return fault(http.StatusNotFound, "there is no such account"), nil
	case have < o.Amount:
		return fault(http.StatusPaymentRequired, "the balance is too low"), nil
	}
	if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - $2 WHERE name = $1", o.From, o.Amount); err != nil {
		return nil, err
	}
	step("payer debited")
	if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + $2 WHERE name = $1", o.To, o.Amount); err != nil {
		return nil, err
	}
	step("payee credited")
	// Another id each time it is done, so that doing it twice would show.
	t := transfer{Transfer: "tr_" + rand.Text()[:16], From: o.From, To: o.To, Amount: o.Amount, Memo: o.Memo}
	const entry = "INSERT INTO entries (transfer, account, amount, memo) VALUES ($1, $2, $3, $4) RETURNING at"
	if err := tx.QueryRow(ctx, entry, t.Transfer, o.From, -o.Amount, o.Memo).Scan(&t.At); err != nil {
		return nil, err
	}
	step("debit entered")
	if err := tx.QueryRow(ctx, entry, t.Transfer, o.To, o.Amount, o.Memo).Scan(&t.At); err != nil {
		return nil, err
	}
	step("credit entered")
	t.At = t.At.UTC()
	return answer(http.StatusCreated, "/transfers/"+t.Transfer, t), nil
}

// findTransfer is pgx.ErrNoRows for who has no part in it.
func findTransfer(ctx context.Context, db *pgxpool.Pool, id, account string) (t transfer, err error) {
	err = db.QueryRow(ctx, `SELECT p.transfer, p.account, q.account, q.amount, q.memo, q.at
		FROM entries p JOIN entries q USING (transfer)
		WHERE transfer = $1 AND p.amount < 0 AND q.amount > 0 AND $2 IN (p.account, q.account)`, id, account).
		Scan(&t.Transfer, &t.From, &t.To, &t.Amount, &t.Memo, &t.At)
	t.At = t.At.UTC()
	return t, err
}

type account struct {
	Name    string `json:"name"`
	Balance int64  `json:"balance"`
}

func findAccount(ctx context.Context, db *pgxpool.Pool, name string) (a account, err error) {
	err = db.QueryRow(ctx, "SELECT name, balance FROM accounts WHERE name = $1", name).Scan(&a.Name, &a.Balance)
	return a, err
}

// books is the state of all accounts at one instant.
type books struct {
	Accounts int64 `json:"accounts"`
	Entries  int64 `json:"entries"`
	Sum      int64 `json:"sum"` // of all balances
	// Balanced: every balance is the opening one and its entries, and every
	// transfer's entries cancel out. So the sum is what it was at the beginning.
	Balanced bool `json:"balanced"`
}

func readBooks(ctx context.Context, db *pgxpool.Pool) (b books, err error) {
	err = db.QueryRow(ctx, `SELECT (SELECT count(*) FROM accounts), (SELECT count(*) FROM entries),
		(SELECT coalesce(sum(balance), 0)::bigint FROM accounts),
		NOT EXISTS (SELECT FROM accounts a LEFT JOIN (SELECT account, sum(amount) AS moved FROM entries GROUP BY account) e ON e.account = a.name
			WHERE a.balance <> a.opening + coalesce(e.moved, 0))
		AND NOT EXISTS (SELECT FROM entries GROUP BY transfer HAVING sum(amount) <> 0)`).
		Scan(&b.Accounts, &b.Entries, &b.Sum, &b.Balanced)
	return b, err
}
