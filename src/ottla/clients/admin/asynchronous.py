"""The asyncio admin client: topics, configs, records, groups, offsets and the cluster itself.

    async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=3)])

An operation on several things returns `Results`: a dict of the successes, with `errors` for the failures. If anything
failed the first error is raised, unless ``raise_errors=False``. Invalid arguments are a `TypeError` or `ValueError`
before anything is sent. The modules beside this one build the requests; here are only names, defaults, checks and
timeouts. `blocking.py` has the same for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.clients import habits
from ottla.clients.admin import acls, descriptions, group_offsets, groups, quotas, topics, users
from ottla.clients.admin import brokers as admin_cluster
from ottla.clients.admin import checks as checks
from ottla.clients.admin.groups import GroupDescription, ListedGroup, MemberToRemove
from ottla.clients.admin.quotas import QuotaEntity
from ottla.clients.admin.users import UserCredential
from ottla.clients.admin.values import (
    ClusterDescription,
    ConfigChange,
    ConfigResource,
    ConfigValue,
    CreatedTopic,
    ListedOffset,
    LogDir,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionReassignment,
    ProducerState,
    Results,
    TopicDescription,
    TopicListing,
    checked_change,
)
from ottla.clients.blocking import IllegalUse, same_loop
from ottla.clients.cluster import leaders as calls
from ottla.clients.cluster.cluster import Cluster, Send
from ottla.config.admin import AdminConfig
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import KafkaError, RequestTimedOut
from ottla.security.acls import AclBinding, AclFilter
from ottla.security.scram import MIN_ITERATIONS
from ottla.suggestions import missing_methods
from ottla.types import BrokerId, Millis, TopicPartition, whole

K = TypeVar("K")
T = TypeVar("T")
REMOVED_BY_ADMIN = "removed by an admin client"


@missing_methods(habits.ADMIN)
class AsyncAdmin:
    """Administers a cluster. Nothing is sent before the first call; ``async with`` closes it.

    It belongs to the event loop of its first call.
    """

    def __init__(self, config: Mapping[str, object] | None = None, **options: object) -> None:
        self.config = AdminConfig.given(config, options)
        self.cluster = Cluster.of(
            self.config, api_timeout_ms=self.config.default_api_timeout_ms, retries=self.config.retries
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._loop = same_loop(self._loop, "admin client")
        await self.cluster.close()

    # Topics.

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic | str] | Mapping[str, int] | NewTopic | str,
        *,
        validate_only: bool = False,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[str, CreatedTopic]:
        """Create topics; a name alone means the broker's defaults, and a dict has their numbers of partitions."""
        if isinstance(new_topics, Mapping):
            new_topics = [NewTopic(name, count) for name, count in new_topics.items()]
        wanted = checks.several(new_topics, NewTopic.given, "topics to create", NewTopic, str)
        work = topics.create_topics(self.cluster, wanted, validate_only=validate_only)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def delete_topics(
        self, names: Iterable[str] | str, *, timeout_ms: Millis | None = None, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete topics with all their records."""
        work = topics.delete_topics(self.cluster, checks.names(names, "topics"))
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: Millis | None = None
    ) -> dict[str, TopicListing]:
        """All topics by name, without internal ones unless `list_internal`."""
        answer = await self._within(timeout_ms, self.cluster.refresh(None))
        found = sorted(answer.topics.values(), key=lambda topic: topic.name)
        return {
            topic.name: TopicListing(topic.name, topic.topic_id, topic.internal)
            for topic in found
            if list_internal or not topic.internal
        }

    async def describe_topics(
        self, names: Iterable[str] | str, *, timeout_ms: Millis | None = None, raise_errors: bool = True
    ) -> Results[str, TopicDescription]:
        """Partitions of topics with their leaders, replicas, in-sync and eligible replicas."""
        wanted = list(dict.fromkeys(checks.names(names, "topics")))
        work = descriptions.describe_topics(self.cluster, wanted)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def create_partitions(
        self,
        new_partitions: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Increase the number of partitions of topics to these totals."""
        wanted = checks.keyed(new_partitions, checks.topic, NewPartitions.given, '{"orders": 5}')
        work = topics.create_partitions(self.cluster, wanted, validate_only=validate_only)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, int]:
        """Delete the records before each offset (-1: all); returns the new first offset of each partition."""
        wanted = checks.keyed(
            records_to_delete,
            checks.partition,
            lambda given, key: whole(given, f"the offset of {key}", least=-1),
            '{TopicPartition("orders", 0): 100}',
        )
        work = self._by_leader(wanted, partial(calls.delete_records, self.cluster), timeout_ms)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    # Configs.

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource | str] | ConfigResource | str,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, dict[str, ConfigValue]]:
        """All configs of topics (plain names), brokers and groups, and the source of each value."""
        wanted = checks.several(resources, ConfigResource.given, "resources", ConfigResource, str)
        work = topics.describe_configs(
            self.cluster,
            dict.fromkeys(wanted),
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource | str, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Set configs, reset them (None), or change lists (`Append`, `Subtract`); all others stay as they are."""
        changes = checks.keyed(
            configs,
            ConfigResource.given,
            lambda given, resource: checks.configs(given, str(resource), checked_change),
            '{"orders": {"retention.ms": 60000}}',
        )
        work = topics.alter_configs(self.cluster, changes, validate_only=validate_only)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    incremental_alter_configs = alter_configs

    # Offsets.

    async def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec | int | str],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ListedOffset]:
        """The offsets of ``"earliest"``, ``"latest"``, ``"max_timestamp"``, or the first at or after a timestamp."""
        wanted = checks.keyed(
            topic_partition_offsets,
            checks.partition,
            lambda given, _: OffsetSpec.given(given),
            '{TopicPartition("orders", 0): "latest"}',
        )
        level = checks.chosen(isolation_level, calls.ISOLATION_LEVELS, "isolation_level")
        send = partial(calls.list_offsets, self.cluster, isolation_level=level)
        found = await self._within(timeout_ms, self._by_leader(wanted, send, timeout_ms))
        return _settled({key: _listed_offset(one) for key, one in found.items()}, raise_errors)

    # The cluster.

    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout_ms: Millis | None = None
    ) -> ClusterDescription:
        """The brokers and the controller. `include_fenced_brokers` adds those that are away, from Kafka 4.1 on."""
        work = admin_cluster.describe_cluster(self.cluster, include_fenced=include_fenced_brokers)
        return await self._within(timeout_ms, work)

    async def unregister_broker(self, broker_id: BrokerId, *, timeout_ms: Millis | None = None) -> None:
        """Forget a broker that was stopped and will not come back. Move its replicas away before."""
        work = admin_cluster.unregister_broker(self.cluster, whole(broker_id, "the id of a broker", bits=32))
        await self._within(timeout_ms, work)

    async def describe_log_dirs(
        self,
        brokers: Iterable[BrokerId] | BrokerId | None = None,
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[BrokerId, dict[str, LogDir]]:
        """The directories of all or some brokers, with the sizes of the partitions in them."""
        wanted = None if brokers is None else checks.brokers(brokers, "brokers", int)
        work = admin_cluster.describe_log_dirs(self.cluster, wanted)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: Millis | None = None, raise_errors: bool = True
    ) -> Results[TopicPartition, list[ProducerState]]:
        """The producers that partition leaders remember, and their open transactions."""
        wanted = checks.partitions(partitions)
        work = self._by_leader(dict.fromkeys(wanted), admin_cluster.describe_producers, timeout_ms)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def elect_leaders(
        self,
        election_type: str = "preferred",
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Elect ``"preferred"`` leaders, or ``"unclean"`` ones where there is no other, which may lose records."""
        kind = checks.chosen(election_type, admin_cluster.ELECTION_TYPES, "election_type")
        wanted = None if partitions is None else checks.partitions(partitions)
        work = admin_cluster.elect_leaders(self.cluster, kind, wanted)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Give partitions other replicas, the preferred leader first. None cancels. It returns before all is copied."""
        wanted = checks.keyed(
            reassignments,
            checks.partition,
            lambda given, key: None if given is None else checks.brokers(given, f"the brokers of {key}"),
            '{TopicPartition("orders", 0): [1, 2]}',
        )
        work = admin_cluster.alter_reassignments(self.cluster, wanted)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: Millis | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are being moved."""
        wanted = None if partitions is None else checks.partitions(partitions)
        return await self._within(timeout_ms, admin_cluster.list_reassignments(self.cluster, wanted))

    # Quotas.

    async def describe_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False, timeout_ms: Millis | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of all entities, or of those that have all the names of `entity`.

        A name may be `QuotaEntity.ANY`. With `strict`, entities with other parts, such as a client id, are left out.
        """
        wanted = QuotaEntity() if entity is None else entity
        work = quotas.describe_quotas(self.cluster, wanted, strict=strict)
        return await self._within(timeout_ms, work)

    async def alter_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[QuotaEntity, None]:
        """Set quotas, as in ``{QuotaEntity(user="alice"): {"producer_byte_rate": 1_000_000}}``. None removes one."""
        example = "{QuotaEntity(user='alice'): {'producer_byte_rate': 1_000_000}}"
        wanted = checks.keyed(changes, quotas.checked_entity, quotas.checked_quotas, example)
        work = quotas.alter_quotas(self.cluster, wanted, validate_only=validate_only)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    # Groups.

    async def list_groups(
        self, *, states: Iterable[str] | str = (), types: Iterable[str] | str = (), timeout_ms: Millis | None = None
    ) -> list[ListedGroup]:
        """All groups by name, optionally filtered by states and types."""
        work = groups.list_groups(
            self.cluster, states=checks.names(states, "states"), types=checks.names(types, "types of groups")
        )
        return await self._within(timeout_ms, work)

    async def describe_groups(
        self, group_ids: Iterable[str] | str, *, timeout_ms: Millis | None = None, raise_errors: bool = True
    ) -> Results[str, GroupDescription]:
        """State, members and assignments of groups of either protocol."""
        work = groups.describe_groups(self.cluster, checks.names(group_ids, "groups"))
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def delete_groups(
        self, group_ids: Iterable[str] | str, *, timeout_ms: Millis | None = None, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete groups without members, and their offsets."""
        work = groups.delete_groups(self.cluster, checks.names(group_ids, "groups"))
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove | str] | MemberToRemove | str | None = None,
        *,
        reason: str = REMOVED_BY_ADMIN,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Remove members of a classic group (all if none are named); a plain text is a `group.instance.id`."""
        checks.name(reason, "the reason")
        if members is None:
            (described,) = (await self.describe_groups([group_id], timeout_ms=timeout_ms)).values()
            found = described.members
            wanted = [MemberToRemove(one.instance_id, "" if one.instance_id else one.member_id) for one in found]
        else:
            wanted = checks.several(members, MemberToRemove.given, "members", MemberToRemove, str)
        if not wanted:
            return Results.of({})
        work = groups.remove_members(self.cluster, checks.group(group_id), wanted, reason=reason)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    # Offsets of groups.

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: Millis | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; empty if the group does not exist."""
        wanted = None if partitions is None else set(checks.partitions(partitions))
        work = group_offsets.committed_offsets(self.cluster, [checks.group(group_id)])
        found = (await self._within(timeout_ms, work))[group_id]
        if isinstance(found, KafkaError):
            raise found
        return {
            key: OffsetAndMetadata(one.offset, one.metadata, one.leader_epoch)
            for key, one in found.items()
            if wanted is None or key in wanted
        }

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Set the offsets of a group without members; a missing group is created."""
        wanted = checks.keyed(offsets, checks.partition, checks.offset, '{TopicPartition("orders", 0): 100}')
        work = group_offsets.commit_offsets(self.cluster, checks.group(group_id), wanted)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets of a group, for partitions of topics that it does not subscribe to."""
        work = group_offsets.delete_offsets(self.cluster, checks.group(group_id), checks.partitions(partitions))
        return _settled(await self._within(timeout_ms, work), raise_errors)

    # Users.

    async def describe_users(
        self, names: Iterable[str] | str | None = None, *, timeout_ms: Millis | None = None, raise_errors: bool = True
    ) -> Results[str, tuple[UserCredential, ...]]:
        """The users (all if none are named) and the SCRAM mechanisms that they have passwords for."""
        wanted = None if names is None else checks.names(names, "users")
        if wanted == []:
            return Results.of({})
        return _settled(await self._within(timeout_ms, users.describe_users(self.cluster, wanted)), raise_errors)

    async def alter_users(
        self,
        passwords: Mapping[str, str | None],
        *,
        mechanisms: Iterable[str] | str | None = None,
        iterations: int = MIN_ITERATIONS,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Set passwords of users for SCRAM (and PLAIN of ottla's brokers); None removes a user.

        ``await admin.alter_users({"alice": "her password", "bob": None})``. All mechanisms unless some are named.
        """
        wanted = users.checked_passwords(passwords)
        kinds, count = users.checked_mechanisms(mechanisms), users.checked_iterations(iterations)
        work = users.alter_users(self.cluster, wanted, kinds, count)
        return _settled(await self._within(timeout_ms, work), raise_errors)

    # ACLs.

    async def create_acls(
        self,
        bindings: Iterable[AclBinding] | AclBinding,
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[AclBinding, None]:
        """Add rules, such as ``AclBinding("topic", "orders", principal="User:etl", operation="read")``."""
        wanted = list(dict.fromkeys(checks.several(bindings, acls.binding, "ACLs", AclBinding)))
        return _settled(await self._within(timeout_ms, acls.create_acls(self.cluster, wanted)), raise_errors)

    async def describe_acls(
        self, selected: AclFilter | None = None, *, timeout_ms: Millis | None = None
    ) -> list[AclBinding]:
        """Return all rules, or those that a filter selects."""
        wanted = AclFilter() if selected is None else acls.acl_filter(selected)
        return await self._within(timeout_ms, acls.describe_acls(self.cluster, wanted))

    async def delete_acls(
        self,
        filters: Iterable[AclFilter | AclBinding] | AclFilter | AclBinding,
        *,
        timeout_ms: Millis | None = None,
        raise_errors: bool = True,
    ) -> Results[AclFilter, list[AclBinding]]:
        """Remove the rules that filters select; returns them for each filter. A rule selects itself."""
        wanted = list(dict.fromkeys(checks.several(filters, acls.acl_filter, "filters", AclFilter, AclBinding)))
        return _settled(await self._within(timeout_ms, acls.delete_acls(self.cluster, wanted)), raise_errors)

    # Helpers.

    async def _by_leader(
        self, work: Mapping[TopicPartition, K], send: Send[K, T], timeout_ms: Millis | None
    ) -> dict[TopicPartition, T | KafkaError]:
        missing = {key.topic for key in work} - self.cluster.metadata.topics.keys()
        if missing:
            await self.cluster.refresh(missing)
        found = await self.cluster.by_leader(work, send, timeout_ms=timeout_ms)
        return {
            key: calls.with_partition(one, key) if isinstance(one, KafkaError) else one for key, one in found.items()
        }

    async def _within(self, timeout_ms: Millis | None, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._loop = same_loop(self._loop, "admin client")
            timeout = checks.timeout(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        except (IllegalUse, TypeError, ValueError):
            work.close()
            raise
        try:
            async with asyncio.timeout(timeout / 1000):
                return await work
        except TimeoutError:
            reason = self.cluster.trouble or (
                "give it more time (timeout_ms, default.api.timeout.ms), or check the brokers"
            )
            raise RequestTimedOut(
                f"the call did not finish within {timeout / 1000:g} s, and may still be carried out: {reason}"
            ) from None


def _settled(outcomes: Mapping[K, T | KafkaError], raise_errors: bool) -> Results[K, T]:
    results = Results.of(outcomes)
    if raise_errors:
        results.raise_first()
    return results


def _listed_offset(found: calls.FoundOffset | KafkaError) -> ListedOffset | KafkaError:
    if isinstance(found, KafkaError):
        return found
    epoch = found.leader_epoch
    return ListedOffset(found.offset, found.timestamp, None if epoch < 0 else epoch)
