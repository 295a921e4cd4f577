"""The ``ottla`` command: main.py, one file a command, and what the commands share.

    main.py       the parser, and where every error becomes one line
    broker.py  topics.py  produce.py  consume.py  groups.py  offsets.py  log.py  perf.py    the commands
    groups_*.py   the larger actions of groups, and what they share; offsets_text.py  the records of the offsets topic
    options.py    options and value parsers that commands share
    session.py    running a command's coroutine against a cluster
    lines.py      records as lines of text
    jsonlines.py  records as lines of JSON
    stdin.py      lines from the standard input, without blocking the event loop
    terminal.py   tables, progress, numbers for people

A command module imports little at its top, so that ``ottla --help`` is quick: the heavy imports are in
functions.
"""
