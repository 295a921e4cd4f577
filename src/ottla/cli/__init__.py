"""The ``ottla`` command: main.py, one module or package per command, and shared helpers.

    main.py          the parser, and error handling
    options.py       the argument parser, shared options and value parsers
    session.py       run a command's coroutine against a cluster
    spark_session.py run a command with a Spark session
    times.py         times and durations
    lines.py         records as lines of text
    jsonlines.py     records as lines of JSON
    stdin.py         read standard input without blocking the event loop
    terminal.py      tables, progress, numbers
    child.py         a broker in a child process
    kernels.py       which kernels are in use: compiled or pure Python
    reference.py     writes docs/reference/commands.md

Command modules keep heavy imports inside functions, so that ``ottla --help`` stays fast.
"""
