"""Who decides about metadata: on one broker this broker, with a journal in a file.

In a cluster it is the active controller (`broker/cluster/controller.py`), whose journal is in ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ottla.broker.replicas import Replicas
from ottla.machine import Outcome
from ottla.metadata import MetadataRecord
from ottla.runtime.runner import Runner

Response = TypeVar("Response")
Operation = Callable[..., Outcome[MetadataRecord, Response]]


class Controller(Protocol):
    """Runs operations of the metadata machine."""

    @property
    def epoch(self) -> int:
        """The epoch of the controller, -1 if this broker is not the controller."""

    @property
    def position(self) -> int:
        """How far this broker has read the metadata log."""

    async def run(self, operation: Operation[Response], /, *args: Any, **kwargs: Any) -> Response:
        """Decide, write the records, apply them to this broker, and return the response."""

    def close(self) -> None: ...


class FileController:
    """The controller of a single broker."""

    def __init__(self, runner: Runner[MetadataRecord], replicas: Replicas, epoch: int) -> None:
        """``epoch`` rises with every start of the broker."""
        self._runner = runner
        self._replicas = replicas
        self.epoch = epoch
        self.position = 0
        """The number of changes since the start."""
        self._lock = asyncio.Lock()

    async def run(self, operation: Operation[Response], /, *args: Any, **kwargs: Any) -> Response:
        decided: list[MetadataRecord] = []

        def decide(**time: Any) -> Outcome[MetadataRecord, Response]:
            outcome = operation(*args, **kwargs, **time)
            decided.extend(outcome.records)
            return outcome

        # One after the other: a topic that exists has its logs.
        async with self._lock:
            response = await self._runner.run(decide)
            self.position += bool(decided)
            changes = await self._replicas.apply(decided)
        await self._replicas.tell_groups(changes)
        return response

    def close(self) -> None:
        self._runner.close()
