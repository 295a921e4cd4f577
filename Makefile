# `make run` and `make test` need only Python 3.11 or newer and a network. `make help` lists the other targets.
PYTHON ?= python3
# Another Python has its own environment: make test PYTHON=python3.13 uses .venv-3.13.
ifeq ($(PYTHON),python3)
VENV := .venv
else
VENV := .venv-$(or $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),missing)
endif
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two more than two cores: the tests wait half of their time, for other people's clients and for timeouts.
JOBS ?= 4
COMPILE := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest >/dev/null 2>&1 --collect-only

.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*##.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24

setup: $(STAMP) ## install ottla and its development dependencies into .venv (PYTHON=python3.13: .venv-3.13)

$(STAMP): pyproject.toml setup.py $(shell find src/ottla -name "*.pyx" -o -name "*.pxi")
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ottla needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,spark]'
	$(BIN)/python -m compileall -q src
	@touch $@

run: setup ## a complete example in about a minute: broker, producers, group, Spark pipeline, audit (ARGS="--data FILE", ARGS=--cluster)
	$(BIN)/ottla demo $(ARGS)

# A failed test is rerun alone, to tell FLAKY from FAILED. Both fail the run. The workers share the bytecode of the tests.
# In a new clone, two processes compile the tests first: each worker would compile all of them.
test: setup ## all tests except the long ones (make long, make spark, make crash-cluster, make test-browser)
	@test -d tests/__pycache__ || { echo "compiling the tests"; $(COMPILE) tests/unit & $(COMPILE) tests --ignore=tests/unit & wait; }
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tools.rerun_failures -n $(JOBS) -m 'not long and not cluster and not browser' --durations=20 tests

# Not with xdist: a browser takes all of two cores.
test-browser: setup ## the console in a browser; needs Chromium (apt install chromium)
	$(BIN)/python -m pytest -m browser -rs --durations=10 tests/browser

screenshots: setup ## take the pictures of docs/images/console-*.png again; needs Chromium (apt install chromium)
	OTTLA_SCREENSHOTS=docs/images $(BIN)/python -m pytest -m browser -rs tests/browser

check: setup ## ruff, mypy strict, import-linter
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# pip builds in the tree: files of an earlier build must not get into a wheel.
wheel: ## build a wheel for each installed Python from 3.11 to 3.14, in dist/
	@set -e; for version in 3.11 3.12 3.13 3.14; do \
		python=python$$version; env=build/wheel-$$version; rm -rf build/lib.* build/bdist.*; \
		$$python -c "" 2>/dev/null || { echo "Python $$version: skipped, $$python is not installed"; continue; }; \
		$$python -m venv $$env 2>/dev/null || { echo "Python $$version: skipped, $$python cannot create a venv"; continue; }; \
		$$env/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .; \
		echo "Python $$version: $$(ls dist/*-cp$$(echo $$version | tr -d .)-*.whl)"; \
	done

format: setup ## format the code
	$(BIN)/ruff check --fix src tests benchmarks tools
	$(BIN)/ruff format src tests benchmarks tools

bench: bench-broker bench-clients bench-spark ## run all benchmarks, about an hour

bench-broker: setup ## the broker and its groups, compared with Apache Kafka if Java 17+ and Maven are installed
	$(BIN)/python -m benchmarks.broker $(ARGS)
	$(BIN)/python -m benchmarks.groups $(ARGS)
	$(BIN)/python -m benchmarks.sending

bench-clients: setup ## the clients and assignors, compared with others (Kafka's assignors need Java 17+ and Maven)
	$(BIN)/python -m benchmarks.producer
	$(BIN)/python -m benchmarks.one_by_one
	$(BIN)/python -m benchmarks.consumer
	$(BIN)/python -m benchmarks.columns
	$(BIN)/python -m benchmarks.loopback
	$(BIN)/python -m benchmarks.assignors
	$(BIN)/python -m benchmarks.transactions

bench-console: setup ## the console with 10,000 partitions and 1,000 groups: time to the first page, idle CPU
	$(BIN)/python benchmarks/console.py

bench-cluster: setup ## three brokers, compared with three nodes of Apache Kafka (Java 17+ and Maven), about 15 minutes
	$(BIN)/python -m benchmarks.cluster $(ARGS)
	$(BIN)/python -m benchmarks.growing

bench-security: setup ## TLS and logins, compared with Apache Kafka (Java 17+ and Maven), and what permissions cost
	$(BIN)/python -m benchmarks.security $(ARGS)
	$(BIN)/python -m benchmarks.authorization

bench-trees: setup ## this checkout beside another one after `make setup` there: make bench-trees OTHER=../before, about 15 minutes
	$(BIN)/python -m benchmarks.trees $(or $(OTHER),$(error name the other checkout: make bench-trees OTHER=../before)) $(ARGS)

bench-spark: setup ## the data source, compared with Spark's Kafka connector (Maven), and shared reads of pipelines
	$(BIN)/python -m benchmarks.spark $(ARGS)
	$(BIN)/python -m benchmarks.spark --scale
	$(BIN)/python -m benchmarks.pipelines --memory 1g

bench-pipelines: setup ## rows a second into each kind of table, beside Spark's Kafka source with the jars of Delta and Iceberg: make bench-pipelines ARGS="--records 10000000 --upsert"
	$(BIN)/python -m benchmarks.pipeline_sinks --jars $(ARGS)

flights: setup ## 336,776 flights through pipelines: joins, windows and aggregates, and as changes of tables, compared with pandas
	$(BIN)/python examples/nycflights/run.py
	$(BIN)/python examples/nycflights/changes.py $(ARGS)

spark: setup ## all Spark tests, including the long ones with clusters, Connect, Declarative Pipelines and kill -9
	$(BIN)/python -m pip install --quiet 'pyspark[connect,pipelines]'
	$(BIN)/python -m pytest tests/spark tests/crash/test_pipelines_kill.py $(ARGS)

starts: setup ## 100 starts of a pipeline with four flows on a loaded machine: make starts STARTS=100
	$(BIN)/python -m tests.crash.starts --starts $(or $(STARTS),100) $(ARGS)

long: setup ## the long tests of clients, commands and the broker, such as 10,000 partitions with 1,024 file descriptors
	$(BIN)/python -m pytest -m long tests --ignore tests/spark --ignore tests/cluster --ignore tests/crash $(ARGS)

crash-pipelines: setup ## pipelines under kill -9 of drivers, executors, broker and database: make crash-pipelines ROUNDS=25 ARGS="--sink delta", ARGS="--sink all --cluster" (all needs apt's postgresql)
	$(BIN)/python -m tests.crash.pipelines --rounds $(or $(ROUNDS),25) $(ARGS)

simulate: setup ## the group coordinator under churn: make simulate SEEDS=0:10000
	$(BIN)/python -m tests.simulation.run --seeds $(or $(SEEDS),0:1000) $(ARGS)

simulate-replication: setup ## leaders, followers and the controller under faults: make simulate-replication SEEDS=0:10000
	$(BIN)/python -m tests.simulation.replication.run --seeds $(or $(SEEDS),0:1000) $(ARGS)

crash: setup ## kill -9 under load, many rounds: make crash ROUNDS=25
	$(BIN)/python -m tests.crash.torture --rounds $(or $(ROUNDS),25) $(ARGS)

crash-transactions: setup ## exactly once under kill -9, with our clients: make crash-transactions ROUNDS=25
	$(BIN)/python -m tests.crash.transactions --rounds $(or $(ROUNDS),25) $(ARGS)

crash-cluster: setup ## a cluster under random faults, Kafka's failure matrix, and broken brokers: make crash-cluster ROUNDS=20
	$(BIN)/python -m tests.cluster.torture --rounds $(or $(ROUNDS),20) $(ARGS)
	$(BIN)/python -m pytest -m long tests/cluster

crash-registry: setup ## 10,000 schemas under kill -9 of broker and registry: make crash-registry SCHEMAS=10000
	$(BIN)/python -m tests.registry.survival --schemas $(or $(SCHEMAS),10000) $(ARGS)

fuzz: setup ## send random and malformed requests to a broker: make fuzz INPUTS=100000
	$(BIN)/python -m tests.fuzz.run --inputs $(or $(INPUTS),100000) $(ARGS)

fuzz-login: setup ## hostile clients that never log in, on each kind of listener: make fuzz-login INPUTS=1000000
	$(BIN)/python -m tests.fuzz.strangers --inputs $(or $(INPUTS),1000000) $(ARGS)

changes: setup ## the same changes in random orders leave the same tables, in SQLite and DuckDB: make changes ORDERS=1000
	$(BIN)/python -m tests.changes.orders --orders $(or $(ORDERS),1000)
	$(BIN)/python -m tests.changes.orders --orders $(or $(ORDERS),100) --engine duckdb

authorizer: setup ## the authorizer beside a slow reference: make authorizer CASES=1000000
	$(BIN)/python -m tests.authorizer.run --cases $(or $(CASES),1000000)

compat-authorizer: setup ## the authorizer and what is refused, beside Apache Kafka (needs Java 17+ and Maven): make compat-authorizer CASES=100000
	$(BIN)/python -m tests.authorizer.kafka --cases $(or $(CASES),100000)
	$(BIN)/python -m tests.authorizer.requests_kafka

compat-java: setup ## the Java client against ottla, also with TLS and every SASL mechanism (needs Java 17+ and Maven)
	$(BIN)/python -m tests.compat.with_broker tests/compat/run_java.sh
	$(BIN)/python -m tests.compat.with_secured_broker tests/compat/run_java.sh

compat-go: setup ## a Go client against ottla, also with TLS and every SASL mechanism (needs Go)
	$(BIN)/python -m tests.compat.with_broker tests/compat/run_go.sh
	$(BIN)/python -m tests.compat.with_secured_broker tests/compat/run_go.sh

compat-java-cluster: setup ## the Java client while leaders of a cluster die (needs Java 17+ and Maven)
	$(BIN)/python -m tests.cluster.foreign tests/compat/run_java.sh

compat-go-cluster: setup ## a Go client while leaders of a cluster die (needs Go)
	$(BIN)/python -m tests.cluster.foreign tests/compat/run_go.sh

compat-spark: setup ## format("ottla") beside Spark's Kafka connector, case by case (needs Java 17+ and Maven)
	$(BIN)/python -m tests.compat_spark $(ARGS)

compat-dump: setup ## Kafka's dump tool on ottla's files (needs Java 17+ and Maven)
	PYTHON=$(BIN)/python $(BIN)/python -m tests.compat.with_broker --files tests/compat/run_dump.sh

compat-ecosystem: setup ## Kafka Streams, Connect, MirrorMaker and Kafka's tools on ottla, with kill -9 (needs Java 17+ and Maven)
	$(BIN)/python -m tests.ecosystem $(ARGS)

compat-kafka: setup ## the compat and client tests against Apache Kafka (needs Java 17+ and Maven)
	OTTLA_COMPAT_BROKER=kafka $(BIN)/python -m pytest tests/compat tests/clients

compat-postgres: setup ## the sinks for databases on Postgres, with kill -9 of the server, and the jdbc sink on Postgres, SQLite, H2 and, if installed, MariaDB (needs apt's postgresql and Maven Central)
	OTTLA_DATABASES=1 $(BIN)/python -m pytest tests/databases $(ARGS)

compat-s3: setup ## Delta and Iceberg tables in an S3 server that dies (needs versitygw on the PATH, or Go to build it in some minutes)
	OTTLA_S3=1 $(BIN)/python -m pytest -rs tests/objects $(ARGS)

compat-jars: setup ## Spark with the jars of Delta and Iceberg reads and changes the tables of pipelines (needs Maven Central)
	OTTLA_JARS=1 $(BIN)/python -m pytest tests/jars $(ARGS)

reference: setup ## generate docs/reference
	$(BIN)/python -m ottla.config.reference > docs/reference/configuration.md
	$(BIN)/python -m ottla.cli.reference > docs/reference/commands.md
	$(BIN)/python -m ottla.security.reference > docs/reference/permissions.md

clean: ## remove everything that the targets create
	rm -rf .venv .venv-* build dist src/*.egg-info run-output spark-warehouse metastore_db derby.log benchmarks/results .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find src/ottla \( -name "*.c" -o -name "*.so" \) -delete
