# The commands of this repository. They need Python >= 3.11; scripts/bootstrap installs or names the rest.
.DEFAULT_GOAL := help
.PHONY: help env demo test test-install lint bench chaos fuzz test-interop test-stores pins clean

RUN := scripts/run

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

env:  ## make .venv and find or install Java
	@scripts/bootstrap python java

demo: env  ## convert and compact a table with a stream's equality deletes, and read it at each step
	@$(RUN) icefleet demo $(ARGS)

test:  ## style, types and all tests but the longest; says what it skipped and why
	@scripts/bootstrap python java redis chromium
	@$(RUN) ruff check .
	@$(RUN) mypy
	@$(RUN) python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-install:  ## install each extra with pip in an environment of its own and use it; takes some minutes
	@scripts/bootstrap python java redis
	@$(RUN) python -m pytest -m install tests/install $(ARGS)

lint:  ## style and types only
	@scripts/bootstrap python
	@$(RUN) ruff check .
	@$(RUN) mypy

bench:  ## measure Icefleet beside its peers and the machine's limit, into bench/report; ARGS="--size smoke" takes some minutes
	@scripts/bootstrap python java redis maven stores
	@$(RUN) python -m bench run $(ARGS)

chaos:  ## break a fleet on purpose for half an hour; ARGS="--minutes 5" for less, ARGS=--help for more
	@scripts/bootstrap python java redis faketime
	@$(RUN) python -m tests.chaos $(ARGS)

fuzz:  ## fuzz everything that is read from outside; ARGS="--minutes 10", ARGS="--target puffin --atheris"
	@scripts/bootstrap python
	@$(RUN) python -m tests.fuzz $(ARGS)

test-interop:  ## tables written and read by Iceberg's Java implementation (Maven)
	@scripts/bootstrap python java redis maven
	@$(RUN) scripts/test-interop $(ARGS)

test-stores:  ## tables on S3 (versitygw, moto), Azure (Azurite) and GCS (fake-gcs-server), through each FileIO; Go and npm
	@scripts/bootstrap python java stores
	@$(RUN) python -m pytest tests/stores -n 2 --dist loadfile $(ARGS)

pins:  ## write constraints.txt from the packages in .venv
	@scripts/bootstrap python
	@scripts/pins

clean:  ## remove the environment and all generated files
	rm -rf .venv .stores build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/interop/java/target icefleet-demo bench-data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
