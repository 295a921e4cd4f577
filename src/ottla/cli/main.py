"""The ``ottla`` command: parse the arguments, run one command, report every failure as one line and an exit code.

    0  success        1  failure: a line on stderr says what was wrong and what to do        2  wrong usage

To add a command, write its module with `configure(parser)` and add it to `_COMMANDS`. Only the module of the command
that runs is imported, so that ``ottla --help`` stays fast.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from ottla.cli.options import Parser, UsageError, add_parser
from ottla.errors import OttlaError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

_COMMANDS = {
    "broker": "run a broker",
    "cluster": "start several brokers on this machine, show and explain the state of a cluster",
    "topics": "list, create, describe, alter, delete and reassign topics, elect leaders",
    "registry": "run a schema registry for Avro, JSON Schema and Protobuf",
    "produce": "write lines from standard input to a topic",
    "consume": "print the records of a topic, and wait for more",
    "groups": "list, describe, explain, reset and delete consumer groups",
    "console": "serve web pages that show and change a cluster",
    "exporter": "serve metrics of all groups to Prometheus, and send events",
    "users": "list, add and remove users, change passwords",
    "acls": "add, list and remove permissions, test and explain what a principal may do",
    "transactions": "list and describe transactions, find and abort hanging ones",
    "quotas": "list, set and remove limits of users, client ids and addresses",
    "offsets": "show the contents of __consumer_offsets",
    "sql": "query topics with Spark SQL",
    "audit": "find lost, repeated, out-of-order and late records between a topic and a table or topic",
    "pipeline": "write, check, test, draw, run and audit declared pipelines on Spark, show their status",
    "table": "compact Delta and Iceberg tables that pipelines write",
    "log": "show the contents of log files",
    "demo": "run a demo: broker, producers, a consumer group, a Spark pipeline and its audit",
    "lab": "compare designs of group management on the same churn, simulated",
    "perf": "measure a broker, producers and consumers on this machine",
}
_EPILOG = """\
examples:
  ottla broker --data-dir ./data                    start a broker on 127.0.0.1:9092
  ottla topics create orders --partitions 3         create a topic
  echo 'alice:hello' | ottla produce orders --key-separator :
  ottla consume orders --from-beginning             read it back, and wait for more
  ottla demo                                        a tour of everything, in about a minute

Commands that talk to a broker work with any Kafka cluster: use --bootstrap-server HOST:PORT, or set
OTTLA_BOOTSTRAP_SERVERS.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    code = _caught(argv)
    if argv is None and code == INTERRUPTED:
        # Another Ctrl-C while Python exits would print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _caught(argv: Sequence[str] | None) -> int:
    rejections = logging.getLogger("ottla.clients.cluster.reports")
    rejections.addFilter(_is_no_error)  # The commands print their errors themselves.
    try:
        return _run(argv)
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        return _fail(str(error), WRONG_USAGE)
    except OttlaError as error:
        return _fail(str(error), FAILED)
    except OSError as error:
        return _fail(_describe(error), FAILED)
    except Exception as error:
        return _fail_unexpectedly(error)
    finally:
        rejections.removeFilter(_is_no_error)


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(arguments[0] if arguments else "")
    args = parser.parse_args(arguments)
    if args.version:
        _print_version()
        return 0
    if args.run is None:
        parser.print_help()
        return WRONG_USAGE
    code: int = args.run(args)
    sys.stdout.flush()
    return code


def build_parser(command: str) -> argparse.ArgumentParser:
    """The parser of all commands; only `command` gets its options."""
    parser = Parser(
        prog="ottla",
        description="Kafka's partitioned log in one pip install: a broker, and tools for any Kafka.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--version", action="store_true", help="show the version, the kernels, the event loop and the Python version"
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, summary in _COMMANDS.items():
        one = add_parser(commands, name, summary)
        if name == command:
            importlib.import_module(f"ottla.cli.{name}").configure(one)
    return parser


def _print_version() -> None:
    import platform

    from ottla import __version__
    from ottla.cli.kernels import KERNELS
    from ottla.runtime.loops import LOOP_NAME

    python = f"{platform.python_version()} ({platform.python_implementation()}, {platform.platform(terse=True)})"
    print(f"ottla {__version__}\nkernels     {KERNELS}\nevent loop  {LOOP_NAME}\npython      {python}")


def _is_no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


def _fail(message: str, code: int) -> int:
    # Messages from a broker may have several lines.
    print(f"ottla: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _describe(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return error.strerror or str(error)


def _reader_left() -> int:
    """The reader closed the pipe, as in ``ottla consume orders | head``: not an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _fail_unexpectedly(error: Exception) -> int:
    if os.environ.get("OTTLA_DEBUG"):
        traceback.print_exc()
    kind = type(error).__name__
    return _fail(f"unexpected {kind}: {error} (this is a bug in ottla; set OTTLA_DEBUG=1 for a traceback)", FAILED)
