"""``ottla log dump FILE...``: print segments, indexes, snapshots and checkpoints like Kafka's own tool."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from ottla.cli.options import add_parser
from ottla.errors import OttlaError

_EPILOG = """\
examples:
  ottla log dump data/orders-0/00000000000000000000.log
  ottla log dump data/orders-0 --records              all segments of a partition, with keys and values
  ottla log dump data/orders-0/*.index data/orders-0/leader-epoch-checkpoint
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    summary = "print the contents of files in a data directory"
    one = add_parser(actions, "dump", summary, more=" The broker may be running.", epilog=_EPILOG)
    one.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file, or the directory of a partition")
    one.add_argument("--deep", action="store_true", help="print the records of each batch, too")
    one.add_argument("--records", action="store_true", help="print keys and values, too")
    one.set_defaults(run=run)


def run(args: Namespace) -> int:
    from ottla.storage.dump import dump

    for path in args.files:
        for file in segment_files(path, "data/orders-0"):
            for line in dump(file, records=args.records, deep=args.deep):
                # Header keys that are not UTF-8 contain surrogate escapes.
                sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
    return 0


def segment_files(path: Path, example: str) -> Iterator[Path]:
    """The file itself, or the segments in a directory in the order of their offsets."""
    if not path.is_dir():
        yield path
        return
    segments = sorted(path.glob("*.log"))
    if not segments:
        raise OttlaError(f"{path} has no .log files: name the directory of a partition, such as {example}")
    yield from segments
