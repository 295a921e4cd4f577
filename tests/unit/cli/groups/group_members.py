"""Group members under the control of a test, one request at a time."""

from __future__ import annotations

from typing import Any

from tests.wire import Wire

from ottla.assignors.base import Assignment, Subscription
from ottla.assignors.embedded import PROTOCOL_TYPE, encode_assignment, encode_subscription
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, MemberIdRequired, RebalanceInProgress
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey

JOIN_VERSION = 8
TIMEOUT_MS = 30_000
_PASSING = (CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code)


class Member(Wire):
    """A consumer of one topic of three partitions, with range as its only assignor."""

    def __init__(self, bootstrap: str, group: str, client_id: str, topic: str, instance_id: str | None = None) -> None:
        super().__init__(int(bootstrap.rpartition(":")[2]))
        self.group, self.client_id, self.topic, self.instance_id = group, client_id, topic, instance_id
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self._correlation_id = 0
        self._find_coordinator()

    # Requests. A join waits for others: `begin_join` sends it, `end_join` receives the response.

    def join(self, reason: str = "") -> None:
        self.begin_join(reason)
        self.end_join()

    def begin_join(self, reason: str = "") -> None:
        if not self.member_id and self.instance_id is None:
            answer = self._ask(ApiKey.JOIN_GROUP, JOIN_VERSION, self._join_message(reason))
            assert answer.error_code == MemberIdRequired.code
            self.member_id = answer.member_id
        self._send(ApiKey.JOIN_GROUP, JOIN_VERSION, self._join_message(reason))

    def end_join(self) -> None:
        answer = self._answer(ApiKey.JOIN_GROUP, JOIN_VERSION)
        assert answer.error_code == 0
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.members = [one.member_id for one in answer.members]

    def await_rebalance(self) -> None:
        """Send heartbeats until the group rebalances: the request of another member has arrived."""
        while self._ask(ApiKey.HEARTBEAT, 3, self._membership()).error_code != RebalanceInProgress.code:
            pass

    def sync(self, assignments: dict[str, list[int]] | None = None) -> None:
        """Sync the generation; the leader passes the assignment."""
        given = [
            {"member_id": member_id, "assignment": encode_assignment(Assignment({self.topic: numbers}))}
            for member_id, numbers in (assignments or {}).items()
        ]
        answer = self._ask(ApiKey.SYNC_GROUP, 3, self._membership() | {"assignments": given})
        assert answer.error_code == 0

    def commit(self, offsets: dict[int, int], metadata: str = "") -> None:
        partitions = [
            {"partition_index": number, "committed_offset": offset, "committed_metadata": metadata}
            for number, offset in offsets.items()
        ]
        message = self._membership() | {"topics": [{"name": self.topic, "partitions": partitions}]}
        message["generation_id_or_member_epoch"] = message.pop("generation_id")
        answer = self._ask(ApiKey.OFFSET_COMMIT, 7, message)
        assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0] * len(offsets)

    def leave(self, reason: str | None = None) -> None:
        leaving = {"member_id": self.member_id, "group_instance_id": self.instance_id, "reason": reason}
        self._ask(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group, "members": [leaving]})

    # Sending.

    def _find_coordinator(self) -> None:
        """Retry while the broker creates the offsets topic."""
        code = -1
        while code:
            code = self._ask(ApiKey.FIND_COORDINATOR, 3, {"key": self.group, "key_type": 0}).error_code
            assert code in (0, *_PASSING)

    def _join_message(self, reason: str) -> dict[str, Any]:
        subscription = encode_subscription(Subscription([self.topic]))
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "session_timeout": TIMEOUT_MS,
            "rebalance_timeout": TIMEOUT_MS,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": "range", "metadata": subscription}],
            "reason": reason,
        }

    def _membership(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    def _ask(self, api_key: int, version: int, message: dict[str, Any]) -> codec.Struct:
        self._send(api_key, version, message)
        return self._answer(api_key, version)

    def _send(self, api_key: int, version: int, message: dict[str, Any]) -> None:
        self._correlation_id += 1
        self.socket.sendall(codec.encode_request(api_key, version, self._correlation_id, self.client_id, message))

    def _answer(self, api_key: int, version: int) -> codec.Struct:
        return codec.decode_response(api_key, version, self.receive())


def give_all(member: Member) -> None:
    """Make a member the only one of its group, with all three partitions."""
    member.join()
    member.sync({member.member_id: [0, 1, 2]})


def share(leader: Member, other: Member, reason: str = "") -> None:
    """Let another member join and get partitions 1 and 2."""
    other.begin_join(reason)
    leader.await_rebalance()
    leader.join()
    other.end_join()
    leader.sync({leader.member_id: [0], other.member_id: [1, 2]})
    other.sync()


class ModernMember(Wire):
    """A member of a group of the consumer protocol (KIP-848): one heartbeat to join, one to say what it has."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(int(bootstrap.rpartition(":")[2]))
        self.group, self.topic, self.member_id = group, topic, f"modern-{group}"
        self.epoch = 0

    def join(self) -> None:
        answer = self._heartbeat(subscribed_topic_names=[self.topic], topic_partitions=[], rebalance_timeout=TIMEOUT_MS)
        given = [
            {"topic_id": one.topic_id, "partitions": list(one.partitions)} for one in answer.assignment.topic_partitions
        ]
        self._heartbeat(topic_partitions=given)

    def leave(self) -> None:
        self.epoch = -1
        self._heartbeat()

    def _heartbeat(self, **fields: Any) -> codec.Struct:
        empty = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout": -1}
        message = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch, **empty, **fields}
        answer = self.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message)
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        return answer
