"""Settings of all tests: messages may not have unknown fields, and nothing may be left open."""

import asyncio
import gc
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ottla.protocol import _fields

_fields.STRICT = True
# A loaded machine is no property of the code. Every run has other examples: --hypothesis-profile=thorough has more.
settings.register_profile("tests", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("tests"), max_examples=1000)
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Let later garbage collections skip the modules and tests, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own. Its argument `loop_factory` can make it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    with asyncio.Runner(loop_factory=pyfuncitem.funcargs.get("loop_factory")) as runner:
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        runner.run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Undo what a command that ran in this process did to logging: its stream is closed after the test."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    for name in ("ottla", "ottla.clients"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def _find_last_leaks() -> Iterator[None]:
    """Find what is still open at the end. pytest does this too late for a worker of xdist to report it."""
    yield
    gc.collect()


TOGETHER = ("tests/spark/", "tests/cluster/")
#: What takes longest, first, so that at the end no worker has a long file left while the others are done.
LONGEST = (
    *TOGETHER,
    "tests/crash/",
    "tests/clients/",
    "tests/compat/",
    "tests/unit/test_",
    "tests/unit/testing/",
    "tests/unit/tools/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((number for number, folder in enumerate(LONGEST) if item.nodeid.startswith(folder)), len(LONGEST))

    items.sort(key=place)


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Keep the tests of a file on one worker, as they share a broker.

    All Spark tests share a session: a second one would take as long to warm up as many tests take. All clusters are on
    one worker, too. Two of them at a time, each with four processes, would slow each other down.
    """
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # by the number of tests

    class Together(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return Together(config, log)
