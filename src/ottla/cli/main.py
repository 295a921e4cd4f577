"""The ``ottla`` command: parse, run one command, and turn every failure into one line and an exit code.

    0  done        1  it failed: the line on stderr says what was wrong and what to do        2  wrong usage

To add a command, write its module with `configure(parser)` and put it into `_COMMANDS`. Only the module of
the command that is run gets imported, so that ``ottla --help`` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from ottla.cli.options import Parser, UsageError
from ottla.errors import OttlaError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

_COMMANDS = {
    "broker": "run a broker",
    "topics": "list, create, describe, alter and delete topics",
    "produce": "write lines from the standard input to a topic",
    "consume": "print the records of a topic, and follow it",
    "groups": "list, describe, explain, reset and delete groups of consumers",
    "transactions": "list and describe transactions, find and abort those that hang",
    "offsets": "look into __consumer_offsets, where groups are kept",
    "sql": "look at topics with Spark SQL",
    "audit": "find what was lost, repeated, out of order or late between a topic and a table or topic",
    "pipeline": "check and run declared pipelines on Spark, see how far they are, replay dead letters",
    "log": "look into the files of a log",
    "demo": "see the whole story: broker, producers, a group, a Spark pipeline and its audit",
    "perf": "see how fast a broker, producers and consumers are on this machine",
}
_EPILOG = """\
try it:
  ottla broker --data-dir ./data                    start a broker on 127.0.0.1:9092
  ottla topics create orders --partitions 3         create a topic
  echo 'alice:hello' | ottla produce orders --key-separator :
  ottla consume orders --from-beginning             read it back, and follow
  ottla demo                                        see it all work, in about a minute

Every command that talks to a broker works with any Kafka: --bootstrap-server HOST:PORT, or set
OTTLA_BOOTSTRAP_SERVERS.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
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
    """The parser of all commands, complete for the one that is about to run."""
    parser = Parser(
        prog="ottla",
        description="Kafka's partitioned log in one pip install: a broker, and tools for any Kafka.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and what it runs on")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, summary in _COMMANDS.items():
        one = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
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


def _fail(message: str, code: int) -> int:
    # One line, whatever a broker may have written into its message.
    print(f"ottla: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _describe(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return error.strerror or str(error)


def _reader_left() -> int:
    """Whoever read our output has seen enough, as in ``ottla consume orders | head``: no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _fail_unexpectedly(error: Exception) -> int:
    if os.environ.get("OTTLA_DEBUG"):
        traceback.print_exc()
    kind = type(error).__name__
    return _fail(f"unexpected {kind}: {error} (a bug in ottla: OTTLA_DEBUG=1 shows where)", FAILED)
