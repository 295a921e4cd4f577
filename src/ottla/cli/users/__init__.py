"""``ottla users list|add|password|remove``: the users that clients log in as, with SCRAM or PLAIN."""

from __future__ import annotations

import argparse
import asyncio
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ottla.cli.options import UsageError, add_filter, whole_number
from ottla.cli.session import add_action
from ottla.cli.terminal import plural, print_json, table
from ottla.cli.users.passwords import add_password_options, read_password
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.users import (
    MECHANISMS,
    UserCredential,
    checked_iterations,
    checked_mechanisms,
    is_missing,
    new_upsertion,
    user_name,
)
from ottla.errors import OttlaError
from ottla.security.scram import MIN_ITERATIONS

EPILOG = """examples:
  ottla users add alice                              asks for the password
  ottla users add alice --password-env ALICE_PASSWORD
  pass show alice | ottla users password alice       a new password, from standard input
  ottla users add admin --data-dir ./data            before the first start of a broker
  ottla users list
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_action(actions, "list", list_, "list the users and their mechanisms")
    _configure_add(add_action(actions, "add", add, "add a user"))
    _configure_password(add_action(actions, "password", password, "give a user a new password"))
    _configure_remove(add_action(actions, "remove", remove, "remove users"))


def _configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _add_kind_options(parser, "both", MIN_ITERATIONS)
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="write the user to the data directory of a broker that does not run, before its first start",
    )
    parser.set_defaults(run=partial(_run_add, run=parser.get_default("run")))


def _run_add(args: Namespace, run: partial[int]) -> int:
    """Add a user with a connection, or without one."""
    return run(args) if args.data_dir is None else _add_to_directory(args)


def _configure_password(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _add_kind_options(parser, "those that the user has", None)


def _configure_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME")
    add_filter(parser, "--mechanism", MECHANISMS, "the password for this mechanism")


def _add_kind_options(parser: argparse.ArgumentParser, default: str, iterations: int | None) -> None:
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=MECHANISMS,
        help=f"a mechanism that the password is for, repeatable (default: {default})",
    )
    parser.add_argument(
        "--iterations",
        type=whole_number,
        default=iterations,
        metavar="N",
        help=f"how much work a guess of the password is, 4096 to 16384 (default: {iterations or 'as before'})",
    )
    add_password_options(parser)


async def list_(admin: AsyncAdmin, args: Namespace) -> int:
    found = await admin.describe_users()
    rows = [(name, one.mechanism, one.iterations) for name, credentials in found.items() for one in credentials]
    if args.json:
        print_json([{"user": user, "mechanism": kind, "iterations": count} for user, kind, count in rows])
    elif rows:
        print(table(["USER", "MECHANISM", "ITERATIONS"], rows))
    else:
        print("there are no users; add one with  ottla users add NAME", file=sys.stderr)
    return 0


async def add(admin: AsyncAdmin, args: Namespace) -> int:
    name = _checked(args)
    if await _credentials_of(admin, name):
        raise OttlaError(f"there is a user {name!r} already; for a new password use  ottla users password {name}")
    await _set_password(admin, args, name, args.mechanism, args.iterations)
    return _done(args, name, "added")


async def password(admin: AsyncAdmin, args: Namespace) -> int:
    name = _checked(args)
    owned = await _credentials_of(admin, name)
    if not owned:
        raise OttlaError(f"there is no user {name!r}; add it with  ottla users add {name}")
    mechanisms = args.mechanism or [one.mechanism for one in owned]
    # Never fewer than before: a new password must not be easier to guess than the old one.
    iterations = args.iterations or max(one.iterations for one in owned)
    await _set_password(admin, args, name, mechanisms, iterations)
    return _done(args, name, "changed")


async def _set_password(
    admin: AsyncAdmin, args: Namespace, name: str, mechanisms: list[str] | None, iterations: int
) -> None:
    secret = await asyncio.to_thread(read_password, args, name)
    await admin.alter_users({name: secret}, mechanisms=mechanisms, iterations=iterations)


async def _credentials_of(admin: AsyncAdmin, name: str) -> Sequence[UserCredential]:
    found = await admin.describe_users([name], raise_errors=False)
    for error in found.errors.values():
        if not is_missing(error):
            raise error
    return found.get(name, ())


def _add_to_directory(args: Namespace) -> int:
    # Imported here because only this needs the broker.
    from ottla.broker.first_users import add_users

    name = _checked(args)
    secret = read_password(args, name)
    kinds = checked_mechanisms(args.mechanism)
    add_users(args.data_dir, [new_upsertion(name, secret, kind, args.iterations) for kind in kinds])
    return _done(args, name, "added")


async def remove(admin: AsyncAdmin, args: Namespace) -> int:
    results = await admin.alter_users(dict.fromkeys(args.names), mechanisms=args.mechanism, raise_errors=False)
    for name, error in results.errors.items():
        if is_missing(error):
            known = await admin.describe_users()
            if name in known:
                raise error
            raise OttlaError(f"there is no user {name!r}; the users are: {', '.join(known) or 'none'}")
        raise error
    if args.json:
        print_json([{"user": name, "status": "removed"} for name in results])
    elif args.mechanism:
        print(f"removed the password for {' and '.join(args.mechanism)} of {', '.join(results)}")
    else:
        print(f"removed {plural(len(results), 'user')}: {', '.join(results)}")
    return 0


def _checked(args: Namespace) -> str:
    try:
        if args.iterations is not None:
            checked_iterations(args.iterations)
        return user_name(args.name)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def _done(args: Namespace, name: str, what: str) -> int:
    if args.json:
        print_json({"user": name, "status": what})
    elif what == "added":
        print(f"added user {name}")
    else:
        print(f"changed the password of {name}; connections that are open stay open until they authenticate again")
    return 0
