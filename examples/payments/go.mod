module github.com/counterfoil/counterfoil/examples/payments

go 1.26
