"""``ottla demo``: a tour of everything in about a minute. See story.py."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path

from ottla.cli.options import UsageError, positive

_EPILOG = """\
examples:
  ottla demo                               generated orders, about a minute
  ottla demo --data flights.csv            the rows of a file; JSON lines work, too
  ottla demo --events 500000 --seconds 60 --master 'local[4]'
  ottla demo --cluster                     three brokers; one of them is killed, and nothing is lost
  ottla demo --cluster --unsafe            settings that allow a loss, and faults that cause it
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--data", type=Path, metavar="FILE", help="send the rows of this CSV or JSON lines file")
    parser.add_argument("--events", type=positive, default=60_000, help="number of generated events (default: 60000)")
    parser.add_argument("--seconds", type=positive, default=20, help="seconds to spread them over (default: 20)")
    parser.add_argument("--producers", type=positive, default=4, help="number of producers (default: 4)")
    parser.add_argument(
        "--consumers", type=positive, default=3, help="members of the consumer group; one is killed (default: 3)"
    )
    parser.add_argument("--partitions", type=positive, default=6, help="partitions of the topic (default: 6)")
    parser.add_argument("--master", default="local[2]", help="the Spark master (default: local[2])")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("run-output"),
        metavar="DIR",
        help="directory for the results; those of an earlier demo are replaced (default: run-output)",
    )
    parser.add_argument("--cluster", action="store_true", help="use three brokers, and kill a leader halfway")
    parser.add_argument(
        "--unsafe",
        action="store_true",
        help="with --cluster: acks=1 and unclean elections, and faults with which records are lost",
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    if args.unsafe and not args.cluster:
        raise UsageError("--unsafe is about what a cluster loses: add --cluster")
    # The demo's consumers import this package, too, and need none of the rest.
    from ottla.cli.demo.story import run as run_story

    return run_story(args)
