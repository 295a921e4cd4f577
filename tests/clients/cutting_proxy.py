"""A TCP proxy that knows Kafka's frames and disturbs chosen produce requests: cut before, inside or after them."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import Self

PRODUCE = 0


class CuttingProxy:
    """Between clients and the broker at `target`, which must advertise `port`.

    `stage` says what happens to the produce requests for which `spoils(number)` is true:

        "request lost"    the connection ends before the broker gets it
        "request cut"     ... with half of it on the way
        "response lost"   the broker has responded, and the client does not get it
        "response cut"    ... with half of the response on the way
        "held"            the response is held back until `release`
    """

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        self.stage: str | None = None
        self.spoils: Callable[[int], bool] = lambda number: False
        self.produced = 0
        self.spoiled = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._released: asyncio.Event | None = None
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def release(self) -> None:
        assert self._released is not None
        self.stage = None
        self._loop.call_soon_threadsafe(self._released.set)

    def spoil(self, stage: str, *numbers: int) -> None:
        """Disturb the produce requests with these numbers, counted from now on."""
        start = self.produced
        self.stage, self.spoils = stage, lambda number: number - start in numbers

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)  # type: ignore[arg-type]

    async def _start(self) -> None:
        self._released = asyncio.Event()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        doomed: dict[int, str] = {}
        try:
            assert self.target is not None
            there, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        tasks = [
            asyncio.create_task(self._requests(reader, back, doomed)),
            asyncio.create_task(self._responses(there, writer, doomed)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (writer, back):
            each.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: dict[int, str]
    ) -> None:
        while True:
            frame = await _frame(reader)
            api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
            if api_key == PRODUCE and self.stage is not None:
                number, self.produced = self.produced, self.produced + 1
                if self.spoils(number):
                    self.spoiled += 1
                    if self.stage == "request lost":
                        return
                    if self.stage == "request cut":
                        writer.write(frame[: len(frame) // 2])
                        await writer.drain()
                        return
                    doomed[correlation_id] = self.stage
            writer.write(frame)
            await writer.drain()

    async def _responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: dict[int, str]
    ) -> None:
        while True:
            frame = await _frame(reader)
            stage = doomed.get(struct.unpack_from(">i", frame, 4)[0])
            if stage == "response lost":
                return
            if stage == "response cut":
                writer.write(frame[: len(frame) // 2])
                await writer.drain()
                return
            if stage == "held":
                assert self._released is not None
                await self._released.wait()
            writer.write(frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])
