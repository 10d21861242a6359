.DEFAULT_GOAL := help
SHELL := bash

COMMIT := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.commit=$(COMMIT)

.PHONY: help
help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## build bin/counterfoil
	cd cmd && GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o ../bin/counterfoil ./counterfoil

.PHONY: run
run: build ## guard a sample payment API and show with real requests what happens
	cd examples/payments && GOWORK=off go build -o ../../bin/payments . && GOWORK=off go build -o ../../bin/walk ./walk
	bin/walk -counterfoil bin/counterfoil -payments bin/payments

.PHONY: test
test: setup lint check ## everything CI runs: linters, all suites with -race, brief fuzzing

.PHONY: setup
setup: ## install what a fresh Debian machine lacks
	scripts/setup

.PHONY: lint
lint: ## formatting, go vet, staticcheck
	scripts/lint

.PHONY: check
check: ## all suites with -race, and brief fuzzing
	scripts/test

.PHONY: bench
bench: ## short benchmarks of every room, with their baselines
	scripts/bench

.PHONY: soak
soak: ## long crash runs; FOR=150m sets how long
	scripts/soak

.PHONY: lint-full
lint-full: ## golangci-lint with .golangci.yml (takes six minutes to install the first time)
	GOBIN=$(CURDIR)/.tools go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	for m in $$(scripts/modules); do (cd $$m && $(CURDIR)/.tools/golangci-lint run ./...) || exit 1; done

.PHONY: fmt
fmt: ## format every module
	GOBIN=$(CURDIR)/.tools go install mvdan.cc/gofumpt@v0.12.0
	for m in $$(scripts/modules); do .tools/gofumpt -l -w $$m; done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin .test
