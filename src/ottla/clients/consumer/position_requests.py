"""Requests for the positions of a consumer: committed offsets, resets, and the ends of epochs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.clients.cluster.leaders import FoundOffset, with_partition
from ottla.clients.consumer.group import monotonic_ms
from ottla.clients.consumer.lookup import Lookup, timestamp_of
from ottla.consuming.positions import Need
from ottla.errors import KafkaError
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.core import Engine


class PositionRequests:
    """Sends what `Positions` needs, and passes the results to it."""

    def __init__(self, engine: Engine, lookup: Lookup) -> None:
        self._engine = engine
        self._lookup = lookup
        self._positions = engine.positions

    def send(self, *, now: Millis) -> None:
        """Send what the positions need now."""
        if self._engine.group is not None and (tokens := self._positions.to_ask(Need.COMMITTED, now=now)):
            self._engine.spawn(self._committed(tokens))
        if tokens := self._positions.to_ask(Need.RESET, now=now):
            self._engine.spawn(self._reset(tokens))
        if tokens := self._positions.to_ask(Need.VALIDATE, now=now):
            self._engine.spawn(self._epochs(tokens))

    async def _committed(self, tokens: dict[TopicPartition, int]) -> None:
        try:
            found = await self._engine.required_group().committed(tokens)
        except KafkaError as error:
            self._failed(tokens, error)
            return
        for key, token in tokens.items():
            self._positions.committed(key, token, found[key])
        self._engine.attend()

    async def _reset(self, tokens: dict[TopicPartition, int]) -> None:
        wall = int(time.time() * 1000)
        resets = {}
        for key in tokens:
            state = self._positions.get(key)
            if state is not None and state.reset is not None:
                resets[key] = timestamp_of(state.reset, wall_ms=wall, duration_ms=self._engine.config.reset_duration_ms)
        try:
            found = await self._lookup.positions(resets)
        except KafkaError as error:
            self._failed(tokens, error)
            return
        for key, one in found.items():
            if isinstance(one, FoundOffset):
                epoch = one.leader_epoch if one.leader_epoch >= 0 else None
                self._positions.found(key, tokens[key], one.offset, epoch)
            else:
                self._failed({key: tokens[key]}, with_partition(one, key))
        self._engine.attend()

    async def _epochs(self, tokens: dict[TopicPartition, int]) -> None:
        epochs = {}
        for key, token in tokens.items():
            state = self._positions.current(key, token)
            if state is not None and state.epoch is not None:
                epochs[key] = (state.epoch, state.leader_epoch)
        try:
            found = await self._lookup.ends_of_epochs(epochs)
        except KafkaError as error:
            self._failed(tokens, error)
            return
        for key, one in found.items():
            if isinstance(one, KafkaError):
                self._failed({key: tokens[key]}, with_partition(one, key))
            elif (cut := self._positions.validated(key, tokens[key], one[1], one[0])) is not None:
                self._engine.fail(cut)
        self._engine.attend()

    def _failed(self, tokens: dict[TopicPartition, int], error: KafkaError) -> None:
        self._engine.trouble = error
        now = monotonic_ms()
        self._positions.try_again(tokens, now + self._engine.config.retry_backoff_ms)
        if not error.retriable:
            self._positions.try_again(tokens, now + self._engine.config.retry_backoff_max_ms)
            self._engine.fail(error)
        self._engine.refresher.refresh(later=True)
        if self._engine.loop is not None:
            self._engine.loop.call_later(self._engine.config.retry_backoff_ms / 1000 + 0.001, self._engine.tick)
