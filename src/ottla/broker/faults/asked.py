"""What a request asks for, so that a fault befalls only those that Kafka could answer like this."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from uuid import UUID

from ottla import errors
from ottla.broker.faults.responses import topics_of
from ottla.broker.fetch_sessions import Key, is_incremental
from ottla.broker.node import Node
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import RequestHeader, Struct

#: Errors of a fetch session (KIP-227): those of a whole request that continues one.
SESSION_ERRORS = (errors.FetchSessionIdNotFound, errors.InvalidFetchSessionEpoch, errors.FetchSessionTopicIdError)
#: The first version of Metadata with an error for the whole response, and its only one (KIP-1102).
REBOOTSTRAP_FROM, REBOOTSTRAP = 13, errors.RebootstrapRequired
_BY_ID_FROM = 13


class Asked:
    """A request that has just arrived. It is decoded when something depends on that."""

    def __init__(self, node: Node, head: RequestHeader, frame: memoryview) -> None:
        self._node = node
        self._head = head
        self._frame = frame
        self.api_key = head.api_key
        self.client_id = head.client_id

    @cached_property
    def request(self) -> Struct | None:
        """The decoded request; None if the broker cannot read it."""
        try:
            return codec.decode_request_body(self.api_key, self._head.api_version, self._frame, self._head.body)
        except codec.DecodeError:
            return None

    def is_of_follower(self) -> bool:
        """Whether another broker copies records with it."""
        if self.api_key != ApiKey.FETCH or self.request is None:
            return False
        state = self.request.replica_state
        return bool((self.request.replica_id if state is None else state.replica_id) >= 0)

    def topics(self) -> Collection[str]:
        """The names of the topics that it is about."""
        if self.request is None:
            return ()
        if self.api_key == ApiKey.FETCH:
            named = {key.topic or key.topic_id for key in self._fetched(self.request)}
        else:
            named = {*topics_of(self.api_key, self._head.api_version, self.request)}
        known = self._node.metadata.topics_by_id
        return {known[each].name if isinstance(each, UUID) and each in known else str(each) for each in named}

    def can_fail(self, error: type[errors.KafkaError]) -> bool:
        """Whether Kafka could answer it with this error. It needs a place for it in the response, for example."""
        request, version = self.request, self._head.api_version
        if request is None:
            return False
        if self.api_key == ApiKey.FETCH:
            return is_incremental(request) if error in SESSION_ERRORS else bool(self._fetched(request))
        if self.api_key == ApiKey.METADATA:
            if error is REBOOTSTRAP:
                return version >= REBOOTSTRAP_FROM
            return bool(self._node.metadata.topics if wants_all_topics(request, version) else request.topics)
        if self.api_key == ApiKey.OFFSET_FETCH and error is errors.UnstableOffsetCommit:
            return bool(request.require_stable)
        return self.api_key != ApiKey.API_VERSIONS or error is not errors.UnsupportedVersion or version > 0

    def _fetched(self, request: Struct) -> list[Key]:
        """The partitions of a fetch, with those of its session. There are none if the session has ended."""
        try:
            return self._node.sessions.partitions(request, by_id=fetches_by_id(self._head.api_version))
        except errors.KafkaError:
            return []


def fetches_by_id(version: int) -> bool:
    """Whether Fetch has ids of topics in this version, and not their names."""
    return version >= _BY_ID_FROM


def wants_all_topics(request: Struct, version: int) -> bool:
    """Whether a Metadata request asks for all topics. An empty list means that in version 0, and later no topics."""
    return request.topics is None or (version == 0 and not request.topics)
