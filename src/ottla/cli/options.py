"""The argument parser, options shared by several commands, and value parsers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ottla.config import parse_address, parse_properties
from ottla.config.broker import is_secret
from ottla.config.secrets import resolved_value
from ottla.errors import OttlaError
from ottla.suggestions import hint as did_you_mean

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
DEFAULT_PORT = 9092
_CHOICE = re.compile(r"argument (?P<what>.*?): invalid choice: '(?P<given>.*?)' \(choose from (?P<names>.*)\)")


class UsageError(OttlaError):
    """Wrong arguments: exit code 2."""


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line and suggests similar names of commands and options."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Report unknown options here: only the parser of the action knows similar ones and the right --help."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = (arg.partition("=")[0] for arg in unknown if arg.startswith("--"))
            hints = (did_you_mean(option, self._option_string_actions) for option in options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{next(filter(None, hints), '')}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_with_nearest(message)} (see {self.prog} --help)\n")


def add_parser(actions: Any, name: str, summary: str, *, more: str = "", epilog: str | None = None) -> Parser:
    """Add a command or an action; the description is the summary as a sentence, plus `more`."""
    description = f"{summary[0].upper()}{summary[1:]}.{more}"
    parser: Parser = actions.add_parser(name, help=summary, description=description, epilog=epilog)
    return parser


def _with_nearest(message: str) -> str:
    match = _CHOICE.match(message)
    if match is None:
        return message
    names = [name.strip().strip("'") for name in match["names"].split(",")]
    hint = did_you_mean(match["given"], names) or f"; choose one of {', '.join(names)}"
    what = "command" if match["what"] in ("COMMAND", "ACTION") else match["what"]
    return f"unknown {what} {match['given']!r}{hint}"


def add_bootstrap_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        type=parse_addresses,
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT[,...]",
        help=f"any broker of the cluster (default: ${BOOTSTRAP_VARIABLE}, or {DEFAULT_BOOTSTRAP})",
    )
    add_command_config_option(parser)


def add_command_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a file with client configs such as security.protocol, one name=value per line",
    )


def command_config(args: argparse.Namespace) -> dict[str, str]:
    """The client configs of ``--command-config``."""
    path: Path | None = args.command_config
    try:
        return {} if path is None else {name: str(value) for name, value in parse_properties(path.read_text()).items()}
    except OSError as error:
        raise UsageError(f"--command-config: cannot read {path} ({error.strerror})") from None


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_master_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", default="local[*]", metavar="URL", help="the Spark master (default: local[*])")


def add_conf_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--conf",
        type=parse_setting,
        action="append",
        metavar="NAME=VALUE",
        help="a Spark setting, such as spark.driver.memory=2g; overrides the file; repeatable",
    )


def client_config(args: argparse.Namespace) -> dict[str, object]:
    """The client configuration of ``--bootstrap-server`` and ``--command-config``."""
    return {
        "client.id": "ottla-cli",
        **command_config(args),
        "bootstrap.servers": format_addresses(args.bootstrap_server),
    }


def format_addresses(addresses: Iterable[tuple[str, int]]) -> list[str]:
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses]


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Parse ``host:port,host:port``; the port is optional.

    >>> parse_addresses("kafka-1:9093,[::1],localhost")
    [('kafka-1', 9093), ('::1', 9092), ('localhost', 9092)]
    """
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise argparse.ArgumentTypeError("no address: write HOST:PORT, such as 127.0.0.1:9092")
    return addresses


def _parse_address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/\s\[\]]+))(?::(?P<port>\d+))?", text)
    port = int(match["port"] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 1 <= port <= 65535:
        hint = " (without the scheme)" if "://" in text else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not an address: write HOST:PORT{hint}, such as 127.0.0.1:9092")
    return match["v6"] or match["host"], port


def parse_listen(text: str) -> tuple[str, int]:
    """Parse the address of a server: ``host:port``.

    >>> parse_listen("127.0.0.1:8080")
    ('127.0.0.1', 8080)
    """
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_setting(text: str) -> tuple[str, str]:
    """Split ``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting: write NAME=VALUE")
    return name.strip(), value.strip()


def settings(pairs: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The settings of a repeated option; each name may appear only once."""
    found: dict[str, str] = {}
    for name, value in pairs or ():
        if name in found:
            raise UsageError(f"{name} is set twice: to {found[name]} and to {value}")
        found[name] = value
    return found


def broker_settings(pairs: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The broker configs of ``--override``. A secret must not be among them: other users see the command line."""
    found = settings(pairs)
    for name, value in found.items():
        if is_secret(name) and resolved_value(name, value) == value:
            raise UsageError(
                f"--override {name}: every user of this machine can read a secret on the command line; set it in the "
                "file of --config, or refer to it with ${env:NAME} or ${file:path}"
            )
    return found


def add_config_option(parser: argparse.ArgumentParser, help_: str) -> None:
    parser.add_argument("-c", "--config", action="append", type=parse_setting, metavar="NAME=VALUE", help=help_)


def add_config_options(parser: argparse.ArgumentParser, help_: str) -> None:
    """Add ``--config`` and ``--delete-config``; see `config_changes`."""
    add_config_option(parser, help_)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="reset this config to the broker's value; repeatable",
    )


def config_changes(args: argparse.Namespace) -> dict[str, str | None]:
    """The values of ``--config``, and None for each ``--delete-config``."""
    configs = settings(args.config)
    for name in args.delete_config:
        if name in configs:
            raise UsageError(f"{name} is both in --config and in --delete-config: remove one")
    return {**configs, **dict.fromkeys(args.delete_config)}


def positive(text: str) -> int:
    return _whole(text, 1, "a whole number >= 1")


def not_negative(text: str) -> int:
    return _whole(text, 0, "a whole number >= 0")


def _whole(text: str, low: int, what: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not digits.isdecimal() or int(digits) < low:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(digits)


def whole_number(text: str) -> int:
    """A whole number, which may be negative."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def add_filter(parser: argparse.ArgumentParser, option: str, names: Sequence[str], what: str) -> None:
    """Add a repeatable option that selects by one of these names, in any case."""
    help_ = f"only {what}: {', '.join(names)}; repeatable"
    metavar = option.removeprefix("--").upper()
    parser.add_argument(option, action="append", type=_one_of(names), metavar=metavar, help=help_)


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    known = {name.lower(): name for name in names}

    def parse(text: str) -> str:
        if text.lower() not in known:
            hint = did_you_mean(text.lower(), known) or f"; choose one of {', '.join(names)}"
            raise argparse.ArgumentTypeError(f"unknown value {text!r}{hint}")
        return known[text.lower()]

    return parse


def separator(text: str) -> bytes:
    r"""The bytes of a separator; the escapes ``\t``, ``\n``, ``\0``, ``\\`` and ``\xNN`` are supported.

    >>> separator(r"\t"), separator("::")
    (b'\t', b'::')
    """
    if not text:
        raise argparse.ArgumentTypeError("the separator is empty")
    escapes = {"t": b"\t", "n": b"\n", "r": b"\r", "0": b"\0", "\\": b"\\"}
    parts = re.split(r"\\(x[0-9A-Fa-f]{2}|[tnr0\\])", text)
    plain = [part.encode("utf-8", "surrogateescape") for part in parts]
    plain[1::2] = [escapes.get(part) or bytes([int(part[1:], 16)]) for part in parts[1::2]]
    return b"".join(plain)


def raw_bytes(text: str) -> bytes:
    """An argument as the bytes that the shell passed."""
    return os.fsencode(text)
