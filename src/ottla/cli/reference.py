"""The reference page of all commands, made from their parsers.

``python -m ottla.cli.reference > docs/reference/commands.md`` renews the page; a test fails while it is out of date.
Change the sentences where the options are declared, and the frame of the page here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from ottla.cli.main import _COMMANDS, build_parser

_TITLE = """# Commands

Made from the parsers of `ottla.cli` by `python -m ottla.cli.reference`; do not edit it by hand.

Exit codes: 0 done; 1 it failed, and one line on stderr says what was wrong and what to do; 2 wrong usage. Every
command that talks to a broker works with any Kafka.
"""


def render() -> str:
    """The page."""
    return _TITLE + "".join("\n" + section for name in _COMMANDS for section in _command(name))


def _command(name: str) -> Iterator[str]:
    parser = _subparsers(build_parser(name))[name]
    yield from _sections(f"ottla {name}", parser)


def _sections(title: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [_row(action) for action in parser._actions if not isinstance(action, _HIDDEN)]
    table = "| argument | meaning |\n| --- | --- |\n" + "".join(rows) if rows else ""
    examples = f"\n```\n{parser.epilog.strip()}\n```\n" if parser.epilog else ""
    yield f"## {title}\n\n{parser.description or ''}\n\n{table}{examples}"
    for name, subparser in _subparsers(parser).items():
        yield from _sections(f"{title} {name}", subparser)


_HIDDEN = (argparse._HelpAction, argparse._SubParsersAction)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


def _row(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices and not isinstance(action.metavar, str):
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    value = "" if action.nargs == 0 else f" {metavar}"
    name = ", ".join(f"`{option}{value}`" for option in action.option_strings) or f"`{metavar}`"
    text = (action.help or "") % {"default": action.default, "prog": "ottla", "choices": action.choices}
    return f"| {name} | {text} |\n".replace("|...", "\\|...")


if __name__ == "__main__":
    sys.stdout.write(render())
