"""``ottla log dump FILE...``: what is in segments, indexes, snapshots and checkpoints, as Kafka's tool says it."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from ottla.errors import OttlaError
from ottla.storage.dump import dump

_EPILOG = """\
examples:
  ottla log dump data/orders-0/00000000000000000000.log
  ottla log dump data/orders-0 --records              all segments of a partition, with keys and values
  ottla log dump data/orders-0/*.index data/orders-0/leader-epoch-checkpoint
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    summary = "print what is in the files of a data directory"
    one = actions.add_parser(
        "dump",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. The broker may be running.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.add_argument("files", nargs="+", type=Path, metavar="FILE", help="or the directory of a partition")
    one.add_argument("--deep", action="store_true", help="also the records in each batch")
    one.add_argument("--records", action="store_true", help="also their keys and values")
    one.set_defaults(run=run)


def run(args: Namespace) -> int:
    for path in args.files:
        for file in _files_of(path):
            for line in dump(file, records=args.records, deep=args.deep):
                # Header keys that are no UTF-8 carry surrogate escapes.
                sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
    return 0


def _files_of(path: Path) -> Iterator[Path]:
    """A file itself; of a directory its segments, in the order of their offsets."""
    if not path.is_dir():
        yield path
        return
    segments = sorted(path.glob("*.log"))
    if not segments:
        raise OttlaError(f"{path} has no .log files: give the directory of a partition, such as data/orders-0")
    yield from segments
