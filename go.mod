module github.com/counterfoil/counterfoil

go 1.26
