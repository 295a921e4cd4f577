"""The requests of this broker to the controller and to other brokers. Each purpose has its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ottla import __version__, errors
from ottla.broker.forwarding import encode_host, encode_principal
from ottla.net.client.errors import Disconnected
from ottla.net.server.connection import CloseConnection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Buffer, Message, Struct
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.cluster.member import Cluster
    from ottla.broker.node import Call, Node
    from ottla.broker.partition import EndOfTransaction
    from ottla.transactions.messages import AddPartitionsRequest

#: How long a request waits for another broker, and for a controller to be elected.
TIMEOUT_MS: Millis = 30_000
RETRY_SECONDS = 0.05
POSITION_TIMEOUT_MS: Millis = 2_000
#: More than the header and the other fields of an envelope need.
ENVELOPE_BYTES = 1_000
CONTROL, FORWARD, MARKERS, VERIFY = "control", "forward", "markers", "verify"


class Requests:
    """What this broker asks other brokers for."""

    def __init__(self, node: Node, cluster: Cluster) -> None:
        self._node = node
        self._cluster = cluster

    async def ask_controller(
        self, api_key: int, message: Message, *, timeout_ms: Millis = TIMEOUT_MS, purpose: str = CONTROL
    ) -> Struct:
        """Send a request to the controller, and wait for one if there is none. Raises NotController if that fails."""

        async def ask() -> Struct:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._cluster.until(lambda: self._cluster.controller_id >= 0)
                return await self._cluster.peers.request(
                    self._cluster.controller_id, api_key, message, purpose=purpose, timeout_ms=timeout_ms
                )

        try:
            return await asyncio.ensure_future(ask())  # A timeout needs a task, and a handler may have none.
        except (errors.OttlaError, TimeoutError) as error:
            if isinstance(error, errors.KafkaError):
                raise
            reason = str(error) or f"it did not answer within {timeout_ms} ms"
            raise errors.NotController(f"The controller cannot be reached: {reason}. Try again.") from error

    async def position_of(self, broker_id: int) -> int:
        """Return how far another broker has read the metadata log, -1 if it does not answer."""
        message = {"client_software_name": "ottla", "client_software_version": __version__}
        try:
            response = await self._cluster.peers.request(
                broker_id, ApiKey.API_VERSIONS, message, purpose=CONTROL, timeout_ms=POSITION_TIMEOUT_MS
            )
        except errors.OttlaError:
            return -1
        return int(response.finalized_features_epoch)

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], replication_factor: int
    ) -> None:
        """Create a topic at the controller, and wait until this broker knows it."""
        response = await self.ask_controller(
            ApiKey.CREATE_TOPICS,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": replication_factor,
                        "assignments": [],
                        "configs": [{"name": key, "value": value} for key, value in configs.items()],
                    }
                ],
                "timeout": TIMEOUT_MS,
            },
        )
        await self._cluster.catch_up()
        code = response.topics[0].error_code
        if code:
            raise errors.error_class(code)(response.topics[0].error_message or "")

    async def take_producer_ids(self) -> range:
        """Take a block of producer ids from the controller."""
        try:
            response = await self.ask_controller(
                ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": self._node.id, "broker_epoch": self._node.broker_epoch}
            )
            if response.error_code:
                raise errors.error_class(response.error_code)("The controller gave no producer ids.")
        except errors.KafkaError as error:
            # As in Kafka: clients try again. They do not know the errors between brokers.
            raise errors.CoordinatorLoadInProgress(f"There are no producer ids now: {error}") from error
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def write_markers(
        self, places: Mapping[int, Sequence[TopicPartition]], end: EndOfTransaction
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        """Write the markers of a transaction to leaders on other brokers."""
        answers: dict[TopicPartition, errors.KafkaError | None] = {}
        results = await asyncio.gather(*(self._write_markers(*each, end) for each in places.items()))
        for result in results:
            answers |= result
        return answers

    async def _write_markers(
        self, leader: int, places: Sequence[TopicPartition], end: EndOfTransaction
    ) -> dict[TopicPartition, errors.KafkaError | None]:
        marker = {
            "producer_id": end.producer_id,
            "producer_epoch": end.producer_epoch,
            "transaction_result": end.committed,
            "topics": [
                {"name": name, "partition_indexes": [each.partition for each in group]}
                for name, group in groupby(sorted(places), key=lambda each: each.topic)
            ],
            "coordinator_epoch": end.coordinator_epoch,
            "transaction_version": end.version,
        }
        try:
            response = await self._cluster.peers.request(
                leader, ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, purpose=MARKERS, timeout_ms=TIMEOUT_MS
            )
        except errors.OttlaError as error:
            return dict.fromkeys(places, errors.NetworkException(str(error)))
        return {
            TopicPartition(topic.name, each.partition_index): _error(each.error_code)
            for topic in response.markers[0].topics
            for each in topic.partitions
        }

    async def add_partitions_to_txn(
        self, coordinator: int, request: AddPartitionsRequest, *, verify_only: bool
    ) -> dict[TopicPartition, int]:
        """Add partitions to a transaction, or verify them, at its coordinator on another broker."""
        if coordinator < 0:
            raise errors.CoordinatorNotAvailable("The coordinator is being elected. Try again.")
        transaction = {
            "transactional_id": request.transactional_id,
            "producer_id": request.producer_id,
            "producer_epoch": request.producer_epoch,
            "verify_only": verify_only,
            "topics": [
                {"name": name, "partitions": [each.partition for each in group]}
                for name, group in groupby(sorted(request.partitions), key=lambda each: each.topic)
            ],
        }
        try:
            response = await self._cluster.peers.request(
                coordinator,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                {"transactions": [transaction]},
                purpose=VERIFY,
                timeout_ms=TIMEOUT_MS,
            )
        except errors.OttlaError as error:
            raise errors.CoordinatorNotAvailable(f"The coordinator cannot be reached: {error}") from error
        return {
            TopicPartition(topic.name, each.partition_index): each.partition_error_code
            for topic in response.results_by_transaction[0].topic_results
            for each in topic.results_by_partition
        }

    async def forward(self, call: Call, frame: bytes) -> Buffer:
        """Have the controller answer the request of a client, and return its response."""
        envelope: Message = {
            "request_data": frame,
            "request_principal": encode_principal(call.principal),
            "client_host_address": encode_host(call.connection.client_host),
        }
        # The controller would close the connection, on which the requests of other clients wait too.
        if (
            len(frame) + len(envelope["request_principal"]) + ENVELOPE_BYTES
            > self._node.config.socket_request_max_bytes
        ):
            raise CloseConnection(f"a request of {len(frame)} bytes is too large to be forwarded to the controller")
        deadline = asyncio.get_running_loop().time() + TIMEOUT_MS / 1000
        while True:
            try:
                response = await self.ask_controller(ApiKey.ENVELOPE, envelope, purpose=FORWARD)
                if not response.error_code:
                    break
                if response.error_code != errors.NotController.code:
                    raise _refused(response.error_code)
                reason: object = "there is another controller now"
            except errors.NotController as error:
                if isinstance(error.__cause__, Disconnected):
                    # It may have been done. The client asks again, and finds out.
                    raise CloseConnection(f"the controller has not answered a forwarded request: {error}") from error
                reason = error
            if asyncio.get_running_loop().time() > deadline:
                raise CloseConnection(f"a request could not be forwarded: {reason}")
            await asyncio.sleep(RETRY_SECONDS)
        await self._cluster.catch_up()
        answer = Buffer(len(response.response_data).to_bytes(4, "big"))
        answer += response.response_data
        return answer


def _refused(code: int) -> CloseConnection:
    error = errors.error_class(code)
    advice = ": add the principal of this broker to super.users" if error is errors.ClusterAuthorizationFailed else ""
    return CloseConnection(f"the controller has refused a forwarded request with {error.name}{advice}")


def _error(code: int) -> errors.KafkaError | None:
    return errors.error_class(code)("The leader refused the marker.") if code else None
