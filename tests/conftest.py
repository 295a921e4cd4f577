"""What every test has: messages are checked for fields that do not exist. And who runs what, with several processes."""

from typing import Any

from ottla.protocol import _fields

_fields.STRICT = True


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """A file's tests stay together, for they share a broker; those on Spark all do, for they share a session."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "tests/spark" if file.startswith("tests/spark/") else file

    return Together(config, log)
