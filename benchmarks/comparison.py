"""What the benchmarks beside Apache Kafka share: their options, progress lines, and the report at the end."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report import Report

RESULTS = Path(__file__).resolve().parent / "results"


def new_parser(description: str, benchmarks: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", action="append", choices=benchmarks, help="only this benchmark (may be repeated)")
    parser.add_argument("--without-kafka", action="store_true", help="measure ottla alone")
    return parser


def add_quick(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--quick", action="store_true", help="few and short repetitions, for a first look")


@contextlib.contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Print and write the report at the end, even if a measurement fails."""
    begin = time.monotonic()
    try:
        yield
    finally:
        if report.measures:
            print(f"\n{report.heading()}\n\n{report.table()}")
            print(f"\nWritten to {report.write(RESULTS)} after {time.monotonic() - begin:.0f} s.")


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
