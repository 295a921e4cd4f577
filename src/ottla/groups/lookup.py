"""Look up groups by name, and build the errors about them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.group_offsets import committed_offsets
from ottla.clients.admin.groups import GroupDescription
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import GroupIdNotFound, KafkaError, NonEmptyGroup, OttlaError
from ottla.suggestions import hint
from ottla.types import TopicPartition
from ottla.wording import plural

SHOWN_MEMBERS = 3


async def existing_groups(admin: AsyncAdmin, names: Sequence[str]) -> list[GroupDescription]:
    """Describe groups, which must exist; the error suggests a similar name."""
    described = await admin.describe_groups(names, raise_errors=False)
    for name, error in described.errors.items():
        if isinstance(error, GroupIdNotFound):
            raise await missing_group(admin, name)
        raise OttlaError(f"group {name!r}: {error}") from error
    return [described[name] for name in dict.fromkeys(names)]


async def missing_group(admin: AsyncAdmin, name: str) -> KafkaError:
    """The error for a group that does not exist, or is not a consumer group."""
    groups = {group.group_id: group for group in await admin.list_groups()}
    if name in groups and groups[name].type is not None:
        return GroupIdNotFound(f"group {name!r} is not a consumer group: its type is {groups[name].type}")
    near = hint(name, groups) or "; `ottla groups list` lists all groups"
    return GroupIdNotFound(f"group {name!r} does not exist{near}")


async def committed_by(admin: AsyncAdmin, names: Sequence[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """The committed offsets of each group; raises the first error."""
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    # The admin client handles one group at a time; there may be thousands.
    for name, outcome in (await committed_offsets(admin.cluster, names)).items():
        if isinstance(outcome, KafkaError):
            raise OttlaError(f"cannot fetch the offsets of group {name!r}: {outcome}") from outcome
        found[name] = outcome
    return found


def active_group(group: GroupDescription, problem: str) -> NonEmptyGroup:
    """The error for a group that must have no members, with advice."""
    count = plural(len(group.members), "active member")
    return NonEmptyGroup(
        f"group {group.group_id!r} {problem} while it has {count} (state {group.state}): {how_to_stop(group)}"
    )


def how_to_stop(group: GroupDescription) -> str:
    """Advice on how to stop the members of a group."""
    shown = [f"client {member.client_id} on {member.host.lstrip('/')}" for member in group.members[:SHOWN_MEMBERS]]
    more = len(group.members) - len(shown)
    names = ", ".join(dict.fromkeys(shown)) + (f" and {more} more" if more else "")
    return (
        f"stop its consumers first ({names}) and wait until the group is Empty; "
        "a killed consumer stays a member until its session timeout expires"
    )
