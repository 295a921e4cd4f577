"""Settings of all tests: messages may not have unknown fields, and nothing may be left open."""

import asyncio
import gc
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ottla.protocol import _fields

_fields.STRICT = True
# A loaded machine is no property of the code.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@pytest.fixture(scope="session", autouse=True)
def _find_last_leaks() -> Iterator[None]:
    """Find what is still open at the end. pytest does this too late for a worker of xdist to report it."""
    yield
    gc.collect()


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Keep the tests of a file on one worker, as they share a broker.

    Spark tests share a session. There are two of them, one for pipelines, so that no worker has most of the work.
    """
    from xdist.scheduler import LoadFileScheduling

    pipelines = ("demo", "jdbc", "pipeline", "restarts", "rules", "runner", "shared", "steps")

    class Together(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if not file.startswith("tests/spark/"):
                return file
            kind = file.removeprefix("tests/spark/test_spark_")
            return "tests/spark pipelines" if kind.startswith(pipelines) else "tests/spark"

    return Together(config, log)
