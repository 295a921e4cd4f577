"""Shared by the actions of ``ottla pipeline``: the file, the cluster, and reporting problems."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

from ottla.cli.options import (
    BOOTSTRAP_VARIABLE,
    UsageError,
    add_command_config_option,
    command_config,
    format_addresses,
    parse_addresses,
)
from ottla.spark.pipelines.declaration import DeclarationError, Pipeline
from ottla.spark.pipelines.exit_codes import FAILED, WRONG
from ottla.spark.pipelines.loading import load
from ottla.suggestions import did_you_mean


def add_file(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?" if optional else None,
        help="the pipeline: a .toml file, or a .py file that defines `pipeline`",
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Like other commands, but the default is in the file."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        type=_addresses,
        metavar="HOST:PORT[,...]",
        help=f"overrides bootstrap_servers of the file (default if the file has none: ${BOOTSTRAP_VARIABLE})",
    )
    add_command_config_option(parser)


def _addresses(text: str) -> str:
    return ",".join(format_addresses(parse_addresses(text)))


def declared(args: Namespace) -> Pipeline:
    """Load the pipeline, with the cluster of the command line."""
    return load(
        args.file,
        bootstrap_servers=args.bootstrap_server,
        default_servers=os.environ.get(BOOTSTRAP_VARIABLE) or None,
        kafka=command_config(args),
    )


def chosen_sinks(pipeline: Pipeline, given: Sequence[str] | None) -> list[str]:
    """The sinks of ``--sink``; raises UsageError if the pipeline does not have one of them."""
    names = [sink.name for sink in pipeline.sinks]
    for name in given or ():
        if name not in names:
            raise UsageError(f"the pipeline has no sink {name}.{did_you_mean(name, names)}")
    return list(given or ())


def reports_problems(action: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Report the problems of a declaration on stderr, with exit code 2, or 1 if they may pass by themselves."""

    @wraps(action)
    def wrapper(args: Namespace) -> int:
        try:
            return action(args)
        except DeclarationError as error:
            for problem in error.problems:
                print(problem, file=sys.stderr)
            return FAILED if all(problem.is_passing for problem in error.problems) else WRONG

    return wrapper
