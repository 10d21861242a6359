module github.com/counterfoil/counterfoil/proof

go 1.26

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/counterfoil/counterfoil v0.0.0
	github.com/counterfoil/counterfoil/pebblestore v0.0.0
)

replace (
	github.com/counterfoil/counterfoil => ../
	github.com/counterfoil/counterfoil/pebblestore => ../pebblestore
)
