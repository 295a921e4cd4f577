"""``ottla pipeline graph FILE``: draw a pipeline as SVG, without Spark."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from pathlib import Path

from ottla.cli.pipeline.common import add_cluster, add_file, declared, reports_problems
from ottla.spark.pipelines.graph import draw

EPILOG = """\
The picture shows sources, tables, steps, sinks and dead letters. It is one file for browsers and documents, and follows
their light or dark color scheme. Move the mouse over a box to see its SQL or schema.

examples:
  ottla pipeline graph orders.toml                     write orders.svg
  ottla pipeline graph orders.toml --output - > x.svg
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the SVG file; - is standard output (default: like FILE, with .svg)"
    )
    parser.set_defaults(run=run)


@reports_problems
def run(args: Namespace) -> int:
    picture = draw(declared(args))
    if args.output == "-":
        sys.stdout.write(picture)
        return 0
    output = Path(args.output) if args.output else args.file.with_suffix(".svg")
    output.write_text(picture, encoding="utf-8")
    print(f"wrote {output}")
    return 0
