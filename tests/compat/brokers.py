"""The broker under test: ottla by default, or another one.

- nothing set: an ottla broker embedded in the test process
- OTTLA_COMPAT_BROKER=kafka: Apache Kafka, started by `benchmarks.apache_kafka`
- OTTLA_COMPAT_BOOTSTRAP=host:port: a running broker; scenarios that restart or configure a broker are skipped
"""

from __future__ import annotations

import abc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import ottla


class RunningBroker(abc.ABC):
    """An ottla broker that keeps its address and data directory over restarts."""

    @property
    @abc.abstractmethod
    def bootstrap_servers(self) -> str: ...

    @property
    @abc.abstractmethod
    def data_dir(self) -> Path: ...

    @abc.abstractmethod
    def stop(self) -> None:
        """Shut down cleanly."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start again after `stop`."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OttlaBroker(RunningBroker):
    def __init__(self, config: Mapping[str, str], data_dir: Path) -> None:
        self._config, self._data_dir, self._listen = dict(config), data_dir, "127.0.0.1:0"
        self.start()

    @property
    def bootstrap_servers(self) -> str:
        return self._listen

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    def start(self) -> None:
        self._broker = ottla.Broker(self._data_dir, listen=self._listen, config=self._config).start()
        self._listen = self._broker.bootstrap_servers

    def stop(self) -> None:
        self._broker.stop()

    def close(self) -> None:
        self._broker.stop()


class KafkaBroker(RunningBroker):
    def __init__(self, config: Mapping[str, str], data_dir: Path) -> None:
        self._peer = _apache_kafka()(config, data_dir=data_dir)
        self._peer.__enter__()

    @property
    def bootstrap_servers(self) -> str:
        return str(self._peer.bootstrap_servers)

    @property
    def data_dir(self) -> Path:
        return Path(self._peer.data_dir)

    def start(self) -> None:
        self._peer.start()

    def stop(self) -> None:
        self._peer.stop()

    def close(self) -> None:
        self._peer.__exit__()


def _apache_kafka() -> Any:
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.append(root)
    from benchmarks.apache_kafka import ApacheKafka

    return ApacheKafka


def outside_broker() -> str | None:
    return os.environ.get("OTTLA_COMPAT_BOOTSTRAP")


def start_broker(config: Mapping[str, str], data_dir: Path) -> RunningBroker:
    kinds = {"ottla": OttlaBroker, "kafka": KafkaBroker}
    kind = os.environ.get("OTTLA_COMPAT_BROKER", "ottla")
    if kind not in kinds:
        raise ValueError(f"OTTLA_COMPAT_BROKER is {kind!r}; use one of {', '.join(kinds)}")
    return kinds[kind](config, data_dir)


@contextmanager
def shared_broker(config: Mapping[str, str], data_dir: Path) -> Iterator[str]:
    """The address of a broker that many tests share, or of the one that is there already."""
    if (outside := outside_broker()) is not None:
        yield outside
        return
    with start_broker(config, data_dir) as broker:
        yield broker.bootstrap_servers
