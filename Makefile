# `make run` and `make test` need Python 3.11 or newer and a network, nothing else. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than two cores: many tests of real clients wait most of their time.
JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup run test check format bench bench-broker bench-clients bench-spark flights spark simulate crash crash-transactions crash-pipelines fuzz compat-java compat-go compat-kafka compat-dump reference clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(STAMP) ## install ottla and what its tests need into .venv

$(STAMP): pyproject.toml setup.py $(shell find src/ottla -name "*.pyx" -o -name "*.pxi")
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 …"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,spark]'
	$(BIN)/python -m compileall -q src
	@touch $@

run: setup ## the whole story in about a minute: broker, producers, a group, a Spark pipeline and its audit (ARGS="--data FILE")
	$(BIN)/ottla demo $(ARGS)

# A failed test is rerun alone, to tell FLAKY from FAILED. Both fail the run. The workers share the bytecode of the tests.
test: setup ## all tests except the longest on Spark (make spark)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tools.rerun_failures -n $(JOBS) -m 'not long and not cluster' --durations=20 tests

check: setup ## ruff, mypy strict, import-linter
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format the code
	$(BIN)/ruff check --fix src tests benchmarks tools
	$(BIN)/ruff format src tests benchmarks tools

bench: bench-broker bench-clients bench-spark ## everything that is measured; about an hour

bench-broker: setup ## the broker and its groups, beside Apache Kafka where Java 17+ and Maven are installed
	$(BIN)/python -m benchmarks.broker $(ARGS)
	$(BIN)/python -m benchmarks.groups $(ARGS)
	$(BIN)/python -m benchmarks.sending

bench-clients: setup ## the clients beside those of others, the assignors beside Kafka's where Java 17+ and Maven are installed
	$(BIN)/python -m benchmarks.producer
	$(BIN)/python -m benchmarks.consumer
	$(BIN)/python -m benchmarks.columns
	$(BIN)/python -m benchmarks.loopback
	$(BIN)/python -m benchmarks.assignors
	$(BIN)/python -m benchmarks.transactions

bench-spark: setup ## the data source beside Spark's own Kafka connector, which comes from Maven Central
	$(BIN)/python -m benchmarks.spark $(ARGS)
	$(BIN)/python -m benchmarks.spark --scale

flights: setup ## 336,776 flights through a pipeline that joins, windows and aggregates, compared with pandas
	$(BIN)/python examples/nycflights/run.py

spark: setup ## all tests on Spark: also those with clusters, Connect, Declarative Pipelines and kill -9, that make test leaves out
	$(BIN)/python -m pip install --quiet 'pyspark[connect,pipelines]'
	$(BIN)/python -m pytest tests/spark tests/crash/test_pipelines_kill.py $(ARGS)

crash-pipelines: setup ## pipelines under kill -9 of drivers, executors and the broker: make crash-pipelines ROUNDS=25
	$(BIN)/python -m tests.crash.pipelines --rounds $(or $(ROUNDS),25) $(ARGS)

simulate: setup ## the group coordinator under churn: make simulate SEEDS=0:10000
	$(BIN)/python -m tests.simulation.run --seeds $(or $(SEEDS),0:1000) $(ARGS)

crash: setup ## kill -9 under load, many rounds: make crash ROUNDS=25
	$(BIN)/python -m tests.crash.torture --rounds $(or $(ROUNDS),25) $(ARGS)

crash-transactions: setup ## exactly once under kill -9, with our clients: make crash-transactions ROUNDS=25
	$(BIN)/python -m tests.crash.transactions --rounds $(or $(ROUNDS),25) $(ARGS)

fuzz: setup ## hostile bytes against a running broker: make fuzz INPUTS=100000
	$(BIN)/python -m tests.fuzz.run --inputs $(or $(INPUTS),100000) $(ARGS)

compat-java: setup ## the Java client against ottla (needs Java 17+ and Maven)
	$(BIN)/python -m tests.compat.with_broker tests/compat/run_java.sh

compat-go: setup ## a Go client against ottla (needs Go)
	$(BIN)/python -m tests.compat.with_broker tests/compat/run_go.sh

compat-dump: setup ## Kafka's own dump tool over ottla's files (needs Java 17+ and Maven)
	PYTHON=$(BIN)/python $(BIN)/python -m tests.compat.with_broker --files tests/compat/run_dump.sh

compat-kafka: setup ## the compat and client tests against Apache Kafka itself (needs Java 17+ and Maven)
	OTTLA_COMPAT_BROKER=kafka $(BIN)/python -m pytest tests/compat tests/clients

reference: setup ## write docs/reference again
	$(BIN)/python -m ottla.config.reference > docs/reference/configuration.md
	$(BIN)/python -m ottla.cli.reference > docs/reference/commands.md

clean: ## remove what the targets above made
	rm -rf $(VENV) build dist src/*.egg-info run-output spark-warehouse metastore_db derby.log benchmarks/results .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find src/ottla \( -name "*.c" -o -name "*.so" \) -delete
