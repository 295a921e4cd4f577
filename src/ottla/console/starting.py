"""The console for those who may not have its packages: import this, and nothing is missing until it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.console.settings import Settings
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.console.server import ConsoleServer, ConsoleThread

PACKAGES = ("jinja2", "markupsafe", "starlette", "uvicorn")


def console_server(settings: Settings) -> ConsoleServer:
    """A console for the running event loop. Raises OttlaError if packages are missing."""
    try:
        from ottla.console.server import ConsoleServer
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return ConsoleServer(settings)


def console_thread(settings: Settings) -> ConsoleThread:
    """A console in a thread of its own, which runs already."""
    try:
        from ottla.console.server import ConsoleThread
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return ConsoleThread(settings)


def _missing(error: ModuleNotFoundError) -> Exception:
    if (error.name or "").partition(".")[0] not in PACKAGES:
        return error
    return OttlaError(f"the console requires {error.name}, which is not installed: pip install 'ottla[console]'")
