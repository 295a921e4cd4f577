"""What the actions of ``ottla pipeline`` share: the file, the cluster that it means, and problems told one a line."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from ottla.cli.options import BOOTSTRAP_VARIABLE, UsageError, parse_addresses
from ottla.config import parse_properties
from ottla.spark.pipelines.declaration import DeclarationError, Pipeline
from ottla.spark.pipelines.loading import load

WRONG = 2


def add_file(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?" if optional else None,
        help="the pipeline: a .toml file, or a .py file that defines `pipeline`",
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """As other commands have it, but what the file says is the default."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        type=_addresses,
        metavar="HOST:PORT[,...]",
        help=f"the cluster, instead of bootstrap_servers of the file (if that has none: ${BOOTSTRAP_VARIABLE})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="more client configs, such as security.protocol and what belongs to it, a name=value a line",
    )


def _addresses(text: str) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in parse_addresses(text))


def given_configs(args: Namespace) -> dict[str, str]:
    """What ``--command-config`` has."""
    path: Path | None = args.command_config
    try:
        return {} if path is None else {name: str(value) for name, value in parse_properties(path.read_text()).items()}
    except OSError as error:
        raise UsageError(f"--command-config: {path} cannot be read ({error.strerror})") from None


def declared(args: Namespace) -> Pipeline:
    """The pipeline of the file, with the cluster of the command line."""
    return load(
        args.file,
        bootstrap_servers=args.bootstrap_server,
        default_servers=os.environ.get(BOOTSTRAP_VARIABLE) or None,
        kafka=given_configs(args),
    )


def telling_problems(action: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Run an action; all problems of a declaration go to stderr, each with file and line, and the exit code is 2."""

    @wraps(action)
    def told(args: Namespace) -> int:
        try:
            return action(args)
        except DeclarationError as error:
            for problem in error.problems:
                print(problem, file=sys.stderr)
            return WRONG

    return told
