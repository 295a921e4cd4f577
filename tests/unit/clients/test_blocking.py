"""The thread behind blocking clients: it ends what it started, and rejects calls that would hang."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from ottla.clients.blocking import IllegalUse, LoopThread


def test_a_coroutine_runs_on_the_loop_and_its_result_comes_back() -> None:
    thread = LoopThread("client")

    async def where() -> str:
        return threading.current_thread().name

    assert thread.call(where()) == "client"
    thread.stop()


def test_an_error_of_the_coroutine_is_raised_to_the_caller() -> None:
    thread = LoopThread("client")

    async def fail() -> None:
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there"):
        thread.call(fail())
    thread.stop()


def test_a_closed_client_says_so() -> None:
    thread = LoopThread("consumer")
    thread.stop()
    with pytest.raises(IllegalUse, match="this consumer is closed: create a new one"):
        thread.call(asyncio.sleep(0))
    thread.stop()


def test_a_call_that_still_waits_when_the_client_is_closed_ends_with_an_error() -> None:
    thread = LoopThread("consumer")
    seen: list[BaseException] = []
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            thread.call(forever())
        except IllegalUse as error:
            seen.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert begun.wait(30)
    thread.stop()
    waiter.join(30)
    assert "closed by another thread" in str(seen[0])


def test_a_blocking_call_from_a_callback_is_rejected_instead_of_hanging() -> None:
    thread = LoopThread("producer")

    async def callback() -> str:
        with pytest.raises(IllegalUse, match="would wait for itself"):
            thread.call(asyncio.sleep(0))
        return "refused"

    assert thread.call(callback()) == "refused"
    thread.stop()


def test_use_in_a_forked_child_is_rejected() -> None:
    thread = LoopThread("producer")
    child = os.fork()
    if child == 0:
        try:
            thread.call(asyncio.sleep(0))
        except IllegalUse as error:
            os._exit(0 if "before the process forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.stop()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_program_does_not_end_the_loop(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    thread = LoopThread("client")

    async def leave() -> None:
        raise error

    def callback() -> None:
        raise error

    with pytest.raises(error):
        thread.call(leave())
    thread.loop.call_soon_threadsafe(callback)
    assert thread.call(asyncio.sleep(0, "alive")) == "alive"
    assert "a callback tried to end the event loop of this client: it keeps running" in caplog.text
    thread.stop()


def test_a_thread_that_has_ended_is_reported_and_can_be_stopped() -> None:
    thread = LoopThread("consumer")
    thread.loop.call_soon_threadsafe(thread.loop.stop)
    thread._thread.join(30)
    told: list[str] = []

    def use() -> None:
        # A new thread may have the identifier of the one that ended.
        with pytest.raises(IllegalUse) as caught:
            thread.call(asyncio.sleep(0))
        told.append(str(caught.value))

    for _ in range(10):
        another = threading.Thread(target=use)
        another.start()
        another.join(30)
    assert set(told) == {"the thread of this consumer has ended: create a new one"}
    thread.stop()


async def test_a_client_can_be_closed_inside_a_running_event_loop() -> None:
    """As in a notebook, whose cells run on a loop."""
    thread = LoopThread("producer")
    thread.stop()
    assert thread.loop.is_closed()
