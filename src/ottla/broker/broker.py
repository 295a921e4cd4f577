"""``ottla.Broker``: an embedded broker for programs and tests.

It has its own thread and event loop, so neither blocking nor asyncio code around it can stall it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ottla.broker.faults import Faults
from ottla.broker.secured import Secured
from ottla.broker.server import BrokerServer
from ottla.broker.snapshots import Snapshot, remove_members
from ottla.broker.views import Groups, Topics
from ottla.config import BrokerConfig
from ottla.config.listeners import parse_address
from ottla.config.secrets import resolved
from ottla.errors import ConfigError, OttlaError
from ottla.runtime.assignors import server_assignors
from ottla.runtime.clock import Clock, ManualClock, SystemClock
from ottla.runtime.loops import new_event_loop
from ottla.runtime.temporary import make_temporary, remove_with
from ottla.security.acls import AclBinding

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.console.server import ConsoleThread
    from ottla.registry_server.server import RegistryThread


class Broker:
    """A Kafka broker inside this process.

    >>> with Broker() as broker:
    ...     broker.bootstrap_servers.startswith("127.0.0.1:")
    True

    Without ``data_dir`` the data is temporary, in memory if the system supports it, and is deleted at the end. Port 0
    picks a free port. ``config`` takes Kafka's broker configs; keywords do too, with underscores:
    ``Broker(num_partitions=3)``. ``async with Broker() as broker:`` also works. For tests there are `faults`, `topics`,
    `groups` and `snapshot`, and ``clock="manual"`` for a clock that moves on request.

    ``tls=True`` encrypts connections with a certificate made for this run; with ``tls="mutual"`` clients need one too.
    ``users`` are names and passwords, and ``acls`` what they may do. `client_config` returns the settings of clients.

    >>> with Broker(tls=True, users={"alice": "secret"}, acls=["alice read,write topic orders"]) as broker:
    ...     broker.client_config("alice")["security.protocol"]
    'SASL_SSL'

    ``registry=True`` adds a schema registry, at ``broker.registry_url``. It needs ``pip install 'ottla[registry]'`` for
    JSON and Protobuf schemas. ``console=True`` adds the web console, at ``broker.console_url``. It needs
    ``pip install 'ottla[console]'``.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, Any] | None = None,
        clock: Clock | Literal["manual"] | None = None,
        from_snapshot: Snapshot | str | Path | None = None,
        tls: bool | Literal["mutual"] = False,
        users: Mapping[str, str] | None = None,
        acls: Sequence[str | AclBinding] | None = None,
        registry: bool = False,
        console: bool = False,
        **configs: Any,
    ) -> None:
        if clock is not None and clock != "manual" and not callable(getattr(clock, "elapsed", None)):
            raise ConfigError(f'clock must be "manual" or a clock such as ottla.testing.ManualClock(), not {clock!r}.')
        if not isinstance(registry, bool):
            raise ConfigError(f"registry must be True or False, not {registry!r}.")
        if not isinstance(console, bool):
            raise ConfigError(f"console must be True or False, not {console!r}.")
        self._with_registry, self._with_console = registry, console
        self._console: ConsoleThread | None = None
        self._registry: RegistryThread | None = None
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._temporary: Path | None = None
        self._values = {**(config or {}), **configs}
        self._listen = listen
        self._clock = ManualClock(SystemClock().now()) if clock == "manual" else clock
        self._snapshot = None if from_snapshot is None else Snapshot.given(from_snapshot)
        self._secured = Secured.of(tls, users, acls)
        # Checked here, so that a mistake is told where it was made.
        server_assignors(self._config(Path("unused")).group_consumer_assignors)
        self._server: BrokerServer | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def _config(self, data_dir: Path) -> BrokerConfig:
        names = {name.replace("_", ".") for name in self._values}
        values = dict(self._values)
        if "listeners" in names and self._secured != Secured():
            raise ConfigError("tls, users and acls choose the listener. Leave listeners out, or configure all of it.")
        if "listeners" not in names:
            try:
                host, port = parse_address(self._listen)
            except ValueError as error:
                raise ConfigError(f"listen: {error}") from None
            values["listeners"] = f"{self._secured.protocol}://{f'[{host}]' if ':' in host else host}:{port}"
            own = self._secured.broker_configs(host)
            values |= {name: value for name, value in own.items() if name not in names}
        if not names & {"log.dirs", "log.dir"}:
            values["log.dirs"] = str(data_dir)
        if self._data_dir is None and "group.initial.rebalance.delay.ms" not in names:
            # Temporary brokers are used in tests, where no other member is about to join.
            values["group.initial.rebalance.delay.ms"] = 0
        return BrokerConfig.parse(resolved(values))

    # ── addresses ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def bootstrap_servers(self) -> str:
        """The address to give to clients, as ``host:port``."""
        server = self._running()
        host = "127.0.0.1" if server.config.listeners[0].is_any_host else server.host
        return f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"

    @property
    def port(self) -> int:
        """The port that the broker listens on."""
        return self._running().port

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._running().cluster_id

    @property
    def data_dir(self) -> Path:
        """The directory of the logs."""
        return Path(self._running().config.data_dirs[0])

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The address that serves metrics, if ``ottla.metrics.listener`` is set."""
        return self._running().metrics_address

    @property
    def registry_url(self) -> str:
        """The URL of the schema registry of ``Broker(registry=True)``."""
        self._running()
        if self._registry is None:
            raise OttlaError("this broker has no schema registry: start it with Broker(registry=True)")
        return self._registry.url

    @property
    def console_url(self) -> str:
        """The URL of the web console of ``Broker(console=True)``."""
        self._running()
        if self._console is None:
            raise OttlaError("this broker has no console: start it with Broker(console=True)")
        return self._console.url

    def client_config(self, user: str | None = None, library: str = "ottla") -> dict[str, Any]:
        """Return the settings with which a client connects as a user.

        ``library`` is ``ottla``, ``confluent-kafka``, ``kafka-python`` or ``aiokafka``. Without a user it is the
        administrator, who may do everything. The settings are a dict for the constructors of ottla and confluent-kafka,
        and keywords for the others: ``KafkaProducer(**broker.client_config("alice", "kafka-python"))``.

        >>> with Broker(users={"alice": "secret"}) as broker:
        ...     broker.client_config("alice")["sasl.username"]
        'alice'
        """
        return self._secured.client_config(user, library, self.bootstrap_servers)

    def _running(self) -> BrokerServer:
        if self._server is None:
            raise OttlaError("the broker is not running: start it with `with Broker() as broker:` or broker.start()")
        return self._server

    # ── for tests ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def faults(self) -> Faults:
        """Faults for the requests of clients: ``with broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER"):``."""
        return Faults(lambda: [self._control])

    @property
    def faults_address(self) -> tuple[str, int] | None:
        """The address that takes orders for faults over HTTP, if ``ottla.faults.listener`` is set."""
        return self._running().faults_address

    @property
    def clock(self) -> Any:
        """The clock of the broker: ``broker.clock.advance(hours=1)`` with ``Broker(clock="manual")``."""
        clock = self._running().clock
        if isinstance(clock, SystemClock):
            raise OttlaError('time passes by itself in this broker: start it with Broker(clock="manual")')
        return clock

    @property
    def topics(self) -> Topics:
        """The topics and what is in them: ``broker.topics["orders"].records()``."""
        from ottla.broker import inspection

        return Topics(partial(self._on_loop, inspection.topics), partial(self._on_loop, inspection.records))

    @property
    def groups(self) -> Groups:
        """The groups: ``broker.groups["billing"].lag``."""
        from ottla.broker import inspection

        return Groups(partial(self._on_loop, inspection.groups), partial(self._on_loop, inspection.group))

    def snapshot(self, path: str | Path | None = None) -> Snapshot:
        """Copy all topics, records, groups and users, to start other brokers from: ``Broker(from_snapshot=...)``.

        The broker is stopped for the copy and started again on the same port, so faults end. The members of groups stay
        in this broker; the others start without them. With a path, the copy is a directory that stays; otherwise it is
        deleted with the returned object.
        """
        server = self._running()
        port, source = server.port, Path(server.config.data_dirs[0])
        if len(server.config.data_dirs) > 1:
            raise OttlaError("a snapshot needs a broker with one data directory (log.dirs)")
        with self._lock:
            self._end()
            try:
                taken = Snapshot.copy(source, None if path is None else Path(path))
            finally:
                self._begin(source, port)
        return taken

    def _on_loop(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of `inspection` on the broker's event loop and return its result."""
        node = self._running().node

        async def call() -> Any:
            return function(node, *args, **options)

        return self._call(call())

    def _control(self, operation: str, values: Mapping[str, Any]) -> Any:
        return self._call(self._running().control.run(operation, values))

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _time_passed(self) -> None:
        self._call(self._running().time_passed())

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> Self:
        """Start the broker and wait until it accepts connections."""
        with self._lock:
            if self._thread is not None:
                raise OttlaError("the broker is already running")
            directory = self._data_dir or self._make_temporary()
            if self._snapshot is not None:
                self._snapshot.restore(directory)
            self._begin(directory, None)
            try:
                if self._with_registry:
                    self._start_registry()
                if self._with_console:
                    self._start_console()
            except BaseException:
                self._stop()
                raise
        return self

    def _start_registry(self) -> None:
        from ottla.registry_server.server import RegistryThread

        self._registry = RegistryThread(self.client_config())

    def _start_console(self) -> None:
        from ottla.console.settings import Settings
        from ottla.console.starting import console_thread

        registry = None if self._registry is None else self._registry.url
        settings = Settings(
            config=self.client_config(), registry=registry, arguments=("--bootstrap-server", self.bootstrap_servers)
        )
        self._console = console_thread(settings)

    def _begin(self, directory: Path, port: int | None) -> None:
        """Start the thread, on a certain port if the broker was only interrupted."""
        config = self._config(directory)
        if port is not None:
            config = replace(config, listeners=(config.listeners[0]._replace(port=port), *config.listeners[1:]))
        started: _Result = _Result()
        prepare = self._secured.prepare if self._snapshot is None or port is not None else self._prepare_restored
        self._thread = threading.Thread(
            target=self._run, args=(config, prepare, started), name="ottla-broker", daemon=True
        )
        self._thread.start()
        error = started.wait()
        if error is not None:
            self._thread.join()
            self._thread = None
            self._remove_temporary()
            raise error
        if isinstance(self._clock, ManualClock):
            self._clock.listeners.append(self._time_passed)

    def stop(self) -> None:
        """Stop the broker and remove temporary data. Does nothing if it is not running."""
        with self._lock:
            if self._thread is not None:
                self._stop()

    def _stop(self) -> None:
        if self._console is not None:
            self._console.stop()
            self._console = None
        if self._registry is not None:
            self._registry.stop()
            self._registry = None
        self._end()
        self._remove_temporary()

    def _end(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        if isinstance(self._clock, ManualClock):
            self._clock.listeners.remove(self._time_passed)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = self._loop = self._server = None

    async def _prepare_restored(self, node: Node) -> None:
        await remove_members(node)
        await self._secured.prepare(node)

    def _run(self, config: BrokerConfig, prepare: Callable[[Node], Awaitable[None]], started: _Result) -> None:
        loop = self._loop = new_event_loop()
        asyncio.set_event_loop(loop)
        server = BrokerServer(config, clock=self._clock, durable_metadata=self._temporary is None, prepare=prepare)
        try:
            loop.run_until_complete(server.start())
        except BaseException as error:
            self._close(loop)
            started.set(error)
            return
        self._server = server
        started.set(None)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(server.stop())
            self._close(loop)

    @staticmethod
    def _close(loop: asyncio.AbstractEventLoop) -> None:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()

    def _make_temporary(self) -> Path:
        self._temporary = make_temporary()
        # A program may end without stopping its broker.
        self._cleanup = remove_with(self, self._temporary)
        return self._temporary

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.get_running_loop().run_in_executor(None, self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)


class _Result:
    """The outcome of starting the thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: BaseException | None = None

    def set(self, error: BaseException | None) -> None:
        self._error = error
        self._event.set()

    def wait(self) -> BaseException | None:
        self._event.wait()
        return self._error
