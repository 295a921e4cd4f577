"""The blocking admin client: every method of `AsyncAdmin`, with the same names and arguments, waits for its result.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics("orders")

A method here runs the one of the asyncio client on its own event loop. Threads may share a client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ottla.clients import habits
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.blocking import IllegalUse, LoopThread
from ottla.config.admin import AdminConfig
from ottla.suggestions import missing_methods

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    @functools.wraps(method)
    def call(self: Admin, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            work = method(self._admin, *args, **kwargs)  # runs nothing yet, so this error is about the arguments
        except TypeError as error:
            raise TypeError(_about_admin(str(error), kwargs)) from None
        return self._thread.call(work)

    return cast("Callable[Concatenate[Admin, P], T]", call)


def _about_admin(problem: str, options: Mapping[str, object]) -> str:
    """The words of a wrong call, without the name of the asyncio client."""
    problem = problem.replace("AsyncAdmin.", "Admin.")
    seconds = options.get("timeout")
    if "'timeout'" not in problem or not isinstance(seconds, int | float):
        return problem
    problem = problem.partition(". Did you mean")[0]  # From Python 3.13 on.
    return f"{problem}: write timeout_ms={seconds * 1000:g}, in milliseconds"


@missing_methods(habits.ADMIN)
class Admin:
    """Administers a cluster. Nothing is sent before the first call; ``with`` closes it."""

    def __init__(self, config: Mapping[str, object] | None = None, **options: object) -> None:
        self._admin = AsyncAdmin(config, **options)
        self._thread = LoopThread("Admin")

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Closing again does nothing."""
        try:
            self._thread.call(self._admin.close())
        except IllegalUse:
            return
        self._thread.stop()

    @property
    def config(self) -> AdminConfig:
        return self._admin.config

    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    delete_records = _blocking(AsyncAdmin.delete_records)
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    incremental_alter_configs = alter_configs
    list_offsets = _blocking(AsyncAdmin.list_offsets)
    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    unregister_broker = _blocking(AsyncAdmin.unregister_broker)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)
    describe_quotas = _blocking(AsyncAdmin.describe_quotas)
    alter_quotas = _blocking(AsyncAdmin.alter_quotas)
    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_groups = _blocking(AsyncAdmin.describe_groups)
    delete_groups = _blocking(AsyncAdmin.delete_groups)
    remove_members = _blocking(AsyncAdmin.remove_members)
    list_group_offsets = _blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _blocking(AsyncAdmin.alter_group_offsets)
    create_acls = _blocking(AsyncAdmin.create_acls)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)
    delete_group_offsets = _blocking(AsyncAdmin.delete_group_offsets)
    describe_users = _blocking(AsyncAdmin.describe_users)
    alter_users = _blocking(AsyncAdmin.alter_users)
