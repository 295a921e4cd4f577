"""The ``ottla`` command: main.py, one file a command, and what the commands share.

    main.py       the parser, and where every error becomes one line
    broker.py  topics.py  produce.py  consume.py  groups.py  transactions.py  offsets.py  sql.py  audit.py  pipeline.py
                  log.py  demo.py  perf.py                                                  the commands
    groups_*.py   the larger actions of groups, and what they share; so are offsets_*, transactions_* and pipeline_*.py
    demo_*.py     the parts of the demo; perf_load.py  the load of perf; child.py  a broker in a process of its own
    spark_session.py  a Spark session for commands
    reference.py  the page of all commands
    kernels.py    which twins of the hot loops are in use
    options.py    options and value parsers that commands share
    session.py    running a command's coroutine against a cluster
    lines.py      records as lines of text
    jsonlines.py  records as lines of JSON
    stdin.py      lines from the standard input, without blocking the event loop
    terminal.py   tables, progress, numbers for people

A command module imports little at its top, so that ``ottla --help`` is quick: the heavy imports are in
functions.
"""
