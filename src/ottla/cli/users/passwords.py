"""Read a password from the terminal, standard input, a file or the environment: never from the command line."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from argparse import Namespace
from pathlib import Path

from ottla.cli.options import UsageError


def add_password_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; without one, the terminal is asked, or standard input is read."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--password-file", type=Path, metavar="FILE", help="read the password from the file's first line"
    )
    group.add_argument("--password-env", metavar="VARIABLE", help="read the password from an environment variable")
    # Everybody on the machine can see the arguments of a process.
    group.add_argument("--password", type=_refused, help=argparse.SUPPRESS)


def _refused(_: str) -> str:
    raise argparse.ArgumentTypeError(
        "a password on the command line can be seen by everybody on this machine: leave --password out to be asked "
        "for it, or use --password-file, --password-env or standard input"
    )


def read_password(args: Namespace, name: str) -> str:
    """Return the password of a user."""
    if args.password_env is not None:
        found = os.environ.get(args.password_env)
        if found is None:
            raise UsageError(f"--password-env: the environment variable {args.password_env} is not set")
        return _checked(found, f"the environment variable {args.password_env}")
    if args.password_file is not None:
        try:
            text = args.password_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageError(f"--password-file: cannot read {args.password_file} ({why})") from None
        return _checked(text.partition("\n")[0].removesuffix("\r"), str(args.password_file))
    if not sys.stdin.isatty():
        return _checked(sys.stdin.readline().removesuffix("\n").removesuffix("\r"), "standard input")
    return _asked(name)


def _asked(name: str) -> str:
    first = _checked(getpass.getpass(f"Password of {name}: "), "your input")
    if getpass.getpass("The same again: ") != first:
        raise UsageError("the two passwords are not the same; nothing was changed")
    return first


def _checked(password: str, source: str) -> str:
    if not password:
        raise UsageError(f"{source} has no password: it is empty")
    if "\0" in password:
        raise UsageError(f"the password in {source} contains a zero byte")
    return password
