"""Requests about users and their passwords (SCRAM credentials). A password never leaves this process, only its key."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.clients.admin import checks
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import read_error
from ottla.errors import KafkaError, ResourceNotFound
from ottla.metadata.users import Upsertion
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, salted_password
from ottla.types import whole

SALT_BYTES = 32
MECHANISMS = tuple(each.mechanism for each in ScramMechanism)
Outcomes = dict[str, KafkaError | None]


class UserCredential(NamedTuple):
    """That a user has a password for a mechanism. Brokers never tell more."""

    mechanism: str
    iterations: int


# ── describe ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def describe_users(
    cluster: Cluster, names: Sequence[str] | None
) -> dict[str, tuple[UserCredential, ...] | KafkaError]:
    """The users with these names (None: all) and their mechanisms."""
    message = {"users": None if names is None else [{"name": name} for name in names]}
    response = await cluster.request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, message)
    if response.error_code:
        raise read_error(response.error_code, response.error_message)
    return {one.user: _read_user(one) for one in sorted(response.results, key=lambda one: str(one.user))}


def _read_user(one: Struct) -> tuple[UserCredential, ...] | KafkaError:
    if one.error_code:
        return read_error(one.error_code, f"user {one.user!r}: {one.error_message or 'not described'}")
    known = {int(each): each.mechanism for each in ScramMechanism}
    return tuple(
        UserCredential(known.get(info.mechanism, f"mechanism {info.mechanism}"), info.iterations)
        for info in sorted(one.credential_infos, key=lambda info: int(info.mechanism))
    )


# ── alter ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def alter_users(
    cluster: Cluster, passwords: Mapping[str, str | None], mechanisms: Sequence[ScramMechanism], iterations: int
) -> Outcomes:
    """Set the passwords of users for these mechanisms; None removes a user's credentials."""
    outcomes: Outcomes = dict.fromkeys(passwords)
    removed = [name for name, password in passwords.items() if password is None]
    owned = await describe_users(cluster, removed) if removed else {}
    for name, found in owned.items():
        if isinstance(found, KafkaError):
            outcomes[name] = found
        elif not any(one.mechanism == each.mechanism for one in found for each in mechanisms):
            kinds = " or ".join(each.mechanism for each in mechanisms)
            outcomes[name] = ResourceNotFound(f"user {name!r} has no password for {kinds}")
    # Kafka accepts a user only once in a request.
    for mechanism in mechanisms:
        deletions = [
            {"name": name, "mechanism": int(mechanism)}
            for name, found in owned.items()
            if not isinstance(found, KafkaError) and any(one.mechanism == mechanism.mechanism for one in found)
        ]
        set_now = {name: text for name, text in passwords.items() if text is not None and outcomes[name] is None}
        upsertions = [
            (await asyncio.to_thread(new_upsertion, name, text, mechanism, iterations))._asdict()
            for name, text in set_now.items()
        ]
        if deletions or upsertions:
            outcomes |= await _alter(cluster, deletions, upsertions)
    return outcomes


def new_upsertion(name: str, password: str, mechanism: ScramMechanism, iterations: int) -> Upsertion:
    """Return what a broker is told about a new password. It takes milliseconds."""
    salt = secrets.token_bytes(SALT_BYTES)
    return Upsertion(name, int(mechanism), iterations, salt, salted_password(mechanism, password, salt, iterations))


async def _alter(cluster: Cluster, deletions: list[dict[str, Any]], upsertions: list[dict[str, Any]]) -> Outcomes:
    message = {"deletions": deletions, "upsertions": upsertions}
    response = await cluster.request_controller(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message, errors=lambda answer: [one.error_code for one in answer.results]
    )
    return {
        one.user: read_error(one.error_code, f"user {one.user!r}: {one.error_message or 'not changed'}")
        if one.error_code
        else None
        for one in response.results
    }


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def checked_passwords(given: object) -> dict[str, str | None]:
    """Check users and their passwords. Errors do not contain a password."""
    example = '{"alice": "her password", "bob": None}'
    if not isinstance(given, Mapping):
        raise TypeError(f"give a dict, such as {example}, not {type(given).__name__}")
    return checks.keyed(given, user_name, _password, example)


def user_name(given: object) -> str:
    name = checks.name(given, "the name of a user")
    if not name or "\0" in name:
        raise ValueError("the name of a user must not be empty or contain a zero byte")
    return name


def _password(given: object, name: str) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(
            f"the password of {name!r} must be text, or None to remove the user, not {type(given).__name__}"
        )
    if not given or "\0" in given:
        raise ValueError(f"the password of {name!r} must not be empty or contain a zero byte")
    return given


def checked_mechanisms(given: Iterable[str] | str | None) -> list[ScramMechanism]:
    """Check names of SCRAM mechanisms; None means all."""
    names = MECHANISMS if given is None else checks.names(given, "mechanisms")
    choices = {each.mechanism.lower(): each for each in ScramMechanism}
    return [checks.chosen(name, choices, "a mechanism") for name in names]


def checked_iterations(given: object) -> int:
    iterations = whole(given, "the number of iterations", bits=32)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"the number of iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {iterations}")
    return iterations


def is_missing(error: KafkaError) -> bool:
    """Whether a user was not described because there is no such user."""
    return isinstance(error, ResourceNotFound)
