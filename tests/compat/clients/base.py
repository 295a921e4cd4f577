"""A common interface to the Kafka client libraries.

An adapter only translates. It adds no retries, waits or repairs, so a scenario sees what a user of the library would
see. Options left at None keep the library's default. Errors of the broker are raised as `ClientError` with Kafka's
code; errors of the library itself have the code None.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

Headers = Sequence[tuple[str, bytes | None]]
Feature = Literal[
    "incremental_alter_configs",  # IncrementalAlterConfigs
    "replace_configs",  # AlterConfigs as in Kafka: configs that are not named return to their defaults
    "null_header_value",
    "null_key_and_value",
    "list_offsets",  # the admin client's, which supports the maximum timestamp
    "default_counts",  # topics without a number of partitions and replicas
    "no_retries",  # retriable errors are visible at once
]


class Code(IntEnum):
    """Kafka's error codes that the scenarios expect."""

    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100


class ClientError(Exception):
    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{_code_name(code)}: {text}")
        self.code = code


def _code_name(code: int | None) -> str:
    if code is None:
        return "error of the client library"
    return Code(code).name if code in list(Code) else f"error code {code}"


class TP(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Message:
    """A record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """The metadata that a producer gets for a record. With acks=0 there is none."""

    partition: int | None
    offset: int | None
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class ConfigValue:
    value: str | None
    is_default: bool
    read_only: bool
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str
    controller: int
    brokers: Mapping[int, str]  # node id → host:port


class Options:
    """Translates options to the names of a library."""

    def named(self, names: Mapping[str, str]) -> dict[str, Any]:
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {names[option]: value for option, value in given.items() if value is not None and option in names}


@dataclass(frozen=True)
class ProducerOptions(Options):
    acks: Literal[0, 1, "all"] | None = None
    compression: str | None = None
    idempotent: bool | None = None
    linger_ms: int | None = None
    batch_bytes: int | None = None
    max_request_bytes: int | None = None
    request_timeout_ms: int | None = None
    delivery_timeout_ms: int | None = None
    max_block_ms: int | None = None
    retries: int | None = None


@dataclass(frozen=True)
class ConsumerOptions(Options):
    offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    fetch_min_bytes: int | None = None
    fetch_max_wait_ms: int | None = None
    fetch_max_bytes: int | None = None
    max_partition_fetch_bytes: int | None = None
    isolation_level: Literal["read_committed", "read_uncommitted"] | None = None
    metadata_max_age_ms: int | None = None


class Closing(abc.ABC):
    _closed = False

    @abc.abstractmethod
    def shut(self) -> None: ...

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Delivery(abc.ABC):
    """The pending result of one `send`."""

    @abc.abstractmethod
    def result(self, timeout: float = 30.0) -> Delivered: ...


class Producer(Closing):
    @abc.abstractmethod
    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = 0,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery: ...

    @abc.abstractmethod
    def flush(self, timeout: float = 30.0) -> None: ...

    def send_all(self, topic: str, values: Iterable[bytes], partition: int | None = 0) -> list[Delivered]:
        """Send without waiting in between, so that records share batches, then wait for all of them."""
        deliveries = [self.send(topic, value, partition=partition) for value in values]
        self.flush()
        return [delivery.result() for delivery in deliveries]


class Consumer(Closing):
    """Reads assigned partitions; these scenarios need no group."""

    @abc.abstractmethod
    def assign(self, offsets: Mapping[TP, int | None]) -> None:
        """Read these partitions from an offset, or from where `offset_reset` says (None)."""

    @abc.abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that arrived; wait at most this many seconds for the first."""

    @abc.abstractmethod
    def seek(self, partition: TP, offset: int) -> None: ...

    @abc.abstractmethod
    def pause(self, partition: TP) -> None: ...

    @abc.abstractmethod
    def resume(self, partition: TP) -> None: ...

    @abc.abstractmethod
    def position(self, partition: TP) -> int: ...

    @abc.abstractmethod
    def watermarks(self, partition: TP) -> tuple[int, int]:
        """Return the log start offset and the end offset from the broker."""

    @abc.abstractmethod
    def offsets_for_times(self, times: Mapping[TP, int]) -> dict[TP, int | None]:
        """Return the first offset at or after each time, or None."""


class Admin(Closing):
    @abc.abstractmethod
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    @abc.abstractmethod
    def create_topic_on(self, name: str, assignment: Sequence[Sequence[int]]) -> None: ...

    @abc.abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abc.abstractmethod
    def list_topics(self) -> set[str]: ...

    @abc.abstractmethod
    def describe_topic(self, name: str) -> list[PartitionInfo]: ...

    @abc.abstractmethod
    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None: ...

    @abc.abstractmethod
    def delete_records(self, before: Mapping[TP, int]) -> dict[TP, int]: ...

    @abc.abstractmethod
    def describe_topic_configs(self, topic: str) -> dict[str, ConfigValue]: ...

    @abc.abstractmethod
    def describe_broker_configs(self, node_id: int) -> dict[str, ConfigValue]: ...

    @abc.abstractmethod
    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """AlterConfigs: replace the configs of the topic."""

    @abc.abstractmethod
    def change_topic_configs(
        self, topic: str, changes: Mapping[str, tuple[Literal["set", "delete", "append", "subtract"], str | None]]
    ) -> None:
        """IncrementalAlterConfigs: configs that are not named stay unchanged."""

    @abc.abstractmethod
    def describe_cluster(self) -> ClusterInfo: ...

    @abc.abstractmethod
    def list_offset(self, partition: TP, spec: Literal["earliest", "latest", "max_timestamp"]) -> tuple[int, int]:
        """Return the offset and the timestamp."""


Opened = TypeVar("Opened", bound=Closing)


class Client(abc.ABC):
    """One library, connected to one cluster. `close` closes everything created here."""

    name: ClassVar[str]
    lacks: ClassVar[frozenset[Feature]] = frozenset()
    unknown_codes: ClassVar[frozenset[Code]] = frozenset()  # codes that the library does not know

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._opened: list[Closing] = []

    def sees(self, code: Code) -> Code | None:
        """Return what this library makes of an error code of the broker."""
        return None if code in self.unknown_codes else code

    def producer(self, **options: Any) -> Producer:
        """Create a producer with these `ProducerOptions`."""
        return self._keep(self.make_producer(ProducerOptions(**options)))

    def consumer(self, **options: Any) -> Consumer:
        """Create a consumer with these `ConsumerOptions`."""
        return self._keep(self.make_consumer(ConsumerOptions(**options)))

    def admin(self) -> Admin:
        return self._keep(self.make_admin())

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()

    @abc.abstractmethod
    def make_producer(self, options: ProducerOptions) -> Producer: ...

    @abc.abstractmethod
    def make_consumer(self, options: ConsumerOptions) -> Consumer: ...

    @abc.abstractmethod
    def make_admin(self) -> Admin: ...

    def _keep(self, opened: Opened) -> Opened:
        self._opened.append(opened)
        return opened
