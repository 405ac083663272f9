# What one types here. Nothing is taken for granted but Python >= 3.11: scripts/bootstrap sees to the rest.
.DEFAULT_GOAL := help
.PHONY: help env demo test test-install lint bench chaos fuzz test-interop pins clean

RUN := scripts/run

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

env:  ## make .venv and find or install Java
	@scripts/bootstrap python java

demo: env  ## a table that a stream filled with equality deletes, converted before your eyes
	@$(RUN) icefleet demo $(ARGS)

test:  ## everything: style, types and all tests but the longest; says what it skipped and why
	@scripts/bootstrap python java redis chromium
	@$(RUN) ruff check .
	@$(RUN) mypy
	@$(RUN) python -m pytest -n 2 --dist loadfile $(ARGS)

test-install:  ## each extra installed by pip in an environment of its own, and used; the image's steps; takes some minutes
	@scripts/bootstrap python java redis
	@$(RUN) python -m pytest -m install tests/install $(ARGS)

lint:  ## style and types alone
	@scripts/bootstrap python
	@$(RUN) ruff check .
	@$(RUN) mypy

bench:  ## Icefleet beside its peers and the physical limit, into bench/report; ARGS="--size smoke" takes three minutes
	@scripts/bootstrap python java redis maven
	@$(RUN) python -m bench run $(ARGS)

chaos:  ## break a fleet on purpose for half an hour; ARGS="--minutes 5" for less, ARGS=--help for more
	@scripts/bootstrap python java redis faketime
	@$(RUN) python -m tests.chaos $(ARGS)

fuzz:  ## everything that is read from outside, fuzzed; ARGS="--minutes 10", ARGS="--target puffin --atheris"
	@scripts/bootstrap python
	@$(RUN) python -m tests.fuzz $(ARGS)

test-interop:  ## the same tables written and read by Iceberg's Java implementation, from Maven
	@scripts/bootstrap python java redis maven
	@$(RUN) scripts/test-interop $(ARGS)

pins:  ## write constraints.txt from what .venv holds now
	@scripts/bootstrap python
	@scripts/pins

clean:  ## remove the environment and all that tools left behind
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/interop/java/target icefleet-demo bench-data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
