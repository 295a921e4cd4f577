"""Options that several commands have, the parsers of their values, and the argument parser itself."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ottla.config import parse_properties
from ottla.errors import OttlaError
from ottla.suggestions import nearest

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
DEFAULT_PORT = 9092
_CHOICE = re.compile(r"argument (?P<what>.*?): invalid choice: '(?P<given>.*?)' \(choose from (?P<names>.*)\)")


class UsageError(OttlaError):
    """The command line cannot be meant: exit code 2."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the nearest name for a misspelt command."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_with_nearest(message)} (see {self.prog} --help)\n")


def _with_nearest(message: str) -> str:
    match = _CHOICE.match(message)
    if match is None:
        return message
    names = [name.strip().strip("'") for name in match["names"].split(",")]
    hint = did_you_mean(match["given"], names) or f"; it is one of {', '.join(names)}"
    what = "command" if match["what"] in ("COMMAND", "ACTION") else match["what"]
    return f"unknown {what} {match['given']!r}{hint}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The hint that ends a complaint about an unknown name, empty when nothing is near.

    >>> did_you_mean("ordres", ["orders", "users"])
    "; did you mean 'orders'?"
    """
    near = nearest(name, names)
    return f"; did you mean {near!r}?" if near else ""


def add_bootstrap_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        type=parse_addresses,
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT[,...]",
        help=f"any broker of the cluster (default: ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client configs, such as security.protocol and what belongs to it, a name=value a line",
    )


def client_config(args: argparse.Namespace) -> dict[str, object]:
    """The client configuration of ``--bootstrap-server`` and ``--command-config``."""
    path: Path | None = args.command_config
    try:
        given = parse_properties(path.read_text()) if path is not None else {}
    except OSError as error:
        raise UsageError(f"--command-config: {path} cannot be read ({error.strerror})") from None
    addresses = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in args.bootstrap_server]
    return {"client.id": "ottla-cli", **given, "bootstrap.servers": addresses}


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """The addresses of ``host:port,host:port``; the port may be left out.

    >>> parse_addresses("kafka-1:9093,[::1],localhost")
    [('kafka-1', 9093), ('::1', 9092), ('localhost', 9092)]
    """
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise argparse.ArgumentTypeError("no address is given: write HOST:PORT, such as 127.0.0.1:9092")
    return addresses


def _parse_address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/\s\[\]]+))(?::(?P<port>\d+))?", text)
    port = int(match["port"] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 1 <= port <= 65535:
        hint = " (without the scheme)" if "://" in text else ""
        raise argparse.ArgumentTypeError(f"{text!r} is no address: write HOST:PORT{hint}, such as 127.0.0.1:9092")
    return match["v6"] or match["host"], port


def parse_setting(text: str) -> tuple[str, str]:
    """The two sides of ``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: write NAME=VALUE, such as retention.ms=60000")
    return name.strip(), value.strip()


def settings(pairs: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The settings of a repeated option; a name that is given twice is a mistake."""
    found: dict[str, str] = {}
    for name, value in pairs or ():
        if name in found:
            raise UsageError(f"{name} is given twice: as {found[name]} and as {value}")
        found[name] = value
    return found


def add_config_option(parser: argparse.ArgumentParser, help_: str) -> None:
    parser.add_argument("-c", "--config", action="append", type=parse_setting, metavar="NAME=VALUE", help=help_)


def add_config_options(parser: argparse.ArgumentParser, help_: str) -> None:
    """Set configs, and unset them: see `config_changes`."""
    add_config_option(parser, help_)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="go back to the broker's value of this config; may be repeated",
    )


def config_changes(args: argparse.Namespace) -> dict[str, str | None]:
    """What ``--config`` sets and ``--delete-config`` unsets (None)."""
    configs = settings(args.config)
    for name in args.delete_config:
        if name in configs:
            raise UsageError(f"{name} is both set and deleted")
    return {**configs, **dict.fromkeys(args.delete_config)}


def positive(text: str) -> int:
    return _whole(text, 1, "a whole number above 0")


def not_negative(text: str) -> int:
    return _whole(text, 0, "a whole number from 0 on")


def _whole(text: str, low: int, what: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not digits.isdecimal() or int(digits) < low:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(digits)


def separator(text: str) -> bytes:
    r"""The bytes of a separator, in which ``\t``, ``\n``, ``\0``, ``\\`` and ``\xNN`` may be written.

    >>> separator(r"\t"), separator("::")
    (b'\t', b'::')
    """
    if not text:
        raise argparse.ArgumentTypeError("a separator cannot be empty")
    escapes = {"t": b"\t", "n": b"\n", "r": b"\r", "0": b"\0", "\\": b"\\"}
    parts = re.split(r"\\(x[0-9A-Fa-f]{2}|[tnr0\\])", text)
    plain = [part.encode("utf-8", "surrogateescape") for part in parts]
    plain[1::2] = [escapes.get(part) or bytes([int(part[1:], 16)]) for part in parts[1::2]]
    return b"".join(plain)


def raw_bytes(text: str) -> bytes:
    """An argument as the bytes that the shell gave."""
    return os.fsencode(text)
