"""The users of a cluster: what is stored of their passwords, and the operation that changes it.

A user has a credential for each SCRAM mechanism. PLAIN checks passwords against the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla import errors
from ottla.machine import Outcome
from ottla.metadata import records as r
from ottla.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Credential, ScramMechanism, credential_of
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.metadata.machine import Metadata

#: The longest name and salt, so that a record fits into a node of ZooKeeper.
MOST_BYTES = 1024
#: What Kafka's tools and ours use for new users.
DEFAULT_KIND = (MIN_ITERATIONS, 32)


class Upsertion(NamedTuple):
    """A new password of a user. ``mechanism`` is a number of the client's."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    """The end of a user's credential."""

    name: str
    mechanism: int


@dataclass(slots=True, repr=False)
class Users:
    """The credentials of all users."""

    _credentials: dict[str, dict[ScramMechanism, Credential]] = field(default_factory=dict)
    _kinds: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._credentials)

    def names(self) -> list[str]:
        """Return the names of all users."""
        return list(self._credentials)

    def credential(self, name: str, mechanism: ScramMechanism) -> Credential | None:
        """Return the credential of a user, None if there is none."""
        return self._credentials.get(name, {}).get(mechanism)

    def of(self, name: str) -> dict[ScramMechanism, Credential]:
        """Return the credentials of a user, empty if there is no such user."""
        return dict(self._credentials.get(name, {}))

    @property
    def usual_kind(self) -> tuple[int, int]:
        """The iterations and the size of the salt that most credentials have."""
        common = self._kinds.most_common(1)
        return common[0][0] if common else DEFAULT_KIND

    def set(self, record: r.UserCredentialSet) -> None:
        """Replay a new credential."""
        mechanism = ScramMechanism(record.mechanism)
        self.remove(record.name, mechanism)
        salt, stored, server = map(bytes.fromhex, (record.salt, record.stored_key, record.server_key))
        credential = Credential(salt, stored, server, record.iterations)
        self._credentials.setdefault(record.name, {})[mechanism] = credential
        self._kinds[_kind(credential)] += 1

    def remove(self, name: str, mechanism: int) -> None:
        """Replay the end of a credential."""
        own = self._credentials.get(name, {})
        credential = own.pop(ScramMechanism(mechanism), None)
        if credential is None:
            return
        if not own:
            del self._credentials[name]
        self._kinds[_kind(credential)] -= 1
        self._kinds += Counter()  # Forget kinds that nobody has.

    def snapshot(self) -> Iterator[r.UserCredentialSet]:
        """Yield the records of all credentials."""
        for name, own in self._credentials.items():
            for mechanism, credential in own.items():
                yield _record(name, mechanism, credential)


def alter_users(
    metadata: Metadata, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], *, now: Millis
) -> Outcome[r.MetadataRecord, dict[str, errors.KafkaError | None]]:
    """Change credentials, and return what is wrong with each user. As in Kafka, a request names a user only once."""
    problems: dict[str, errors.KafkaError | None] = {}
    records: dict[str, r.MetadataRecord] = {}
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in changes:
        if problems.get(change.name) is not None:
            continue
        problem = _problem(metadata.users, change)
        if records.pop(change.name, None) is not None:
            problem = errors.DuplicateResource("A user credential cannot be altered twice in the same request.")
        problems[change.name] = problem
        if problem is None:
            records[change.name] = _changed(change)
    return Outcome(tuple(records.values()), problems)


def _problem(users: Users, change: Deletion | Upsertion) -> errors.KafkaError | None:
    if not change.name:
        return errors.UnacceptableCredential("The user name must not be empty.")
    if len(change.name) > MOST_BYTES:
        return errors.UnacceptableCredential(f"The user name must not be longer than {MOST_BYTES} characters.")
    if change.mechanism not in ScramMechanism._value2member_map_:
        return errors.UnsupportedSaslMechanism("Unknown SCRAM mechanism. There are SCRAM-SHA-256 and SCRAM-SHA-512.")
    if isinstance(change, Deletion):
        if users.credential(change.name, ScramMechanism(change.mechanism)) is None:
            return errors.ResourceNotFound("Attempt to delete a user credential that does not exist.")
        return None
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        few_or_many = "few" if change.iterations < MIN_ITERATIONS else "many"
        return errors.UnacceptableCredential(
            f"Too {few_or_many} iterations: there must be {MIN_ITERATIONS} to {MAX_ITERATIONS}."
        )
    if not change.salted_password or not 0 < len(change.salt) <= MOST_BYTES:
        return errors.UnacceptableCredential(
            f"The salted password must not be empty, and the salt must have 1 to {MOST_BYTES} bytes."
        )
    return None


def _changed(change: Deletion | Upsertion) -> r.MetadataRecord:
    mechanism = ScramMechanism(change.mechanism)
    if isinstance(change, Deletion):
        return r.UserCredentialRemoved(change.name, mechanism)
    credential = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return _record(change.name, mechanism, credential)


def _record(name: str, mechanism: ScramMechanism, credential: Credential) -> r.UserCredentialSet:
    keys = credential.salt.hex(), credential.stored_key.hex(), credential.server_key.hex()
    return r.UserCredentialSet(name, int(mechanism), *keys, credential.iterations)


def _kind(credential: Credential) -> tuple[int, int]:
    return credential.iterations, len(credential.salt)
