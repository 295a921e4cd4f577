"""The faults that end a round of pipelines.py: functions in this module, and the points of pipeline_doom.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .pipeline_doom import MACHINE, POINTS, SELF, SHARED_POINTS
from .pipeline_process import Application, Flow, Stuck

if TYPE_CHECKING:
    from .pipelines import Run

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,512]"


@dataclass(frozen=True)
class Fault:
    """A way to end a round."""

    name: str
    strike: Callable[[Run, Application], str] | None = None
    """The action from outside; None if the application kills itself."""
    point: str | None = None
    victim: str = MACHINE
    master: str = LOCAL
    harms_broker: bool = False
    sink: str = ""
    """The kind of sink that it is for (`--sink`); empty: all."""


def await_doom(run: Run, application: Application) -> str:
    """Wait until the point was reached and the application has ended, or continues if one process was killed."""
    if not run.until(application, lambda: application.was_struck is not None, "the point was reached"):
        application.process.wait()
        return f"never came to it ({application.calls} calls)" if application.was_struck is None else "at the point"
    count = (application.was_struck or "").split(", ")[1]
    if application.is_doomed_as_a_whole:
        # It kills itself, but a signal that the kernel sends to its process groups may arrive first.
        application.kill_all()
        return f"at {count}"
    return f"at {count}{_aftermath(run, application)}"


def _aftermath(run: Run, application: Application) -> str:
    """How it continued: it works, or has ended."""
    if run.until_working(application, 4):
        return _stop(run, application)
    code = application.process.wait()
    return "" if code == -9 else f", ended with code {code}"


def _stop(run: Run, application: Application) -> str:
    """Let it continue, then stop or kill it."""
    if run.chance.random() < 0.5:
        application.kill_all()
        return ", went on, killed"
    application.terminate()
    if not application.wait(60):
        raise Stuck(f"it did not stop within 60 s of SIGTERM\n{application.last_words()}")
    # One flow may continue while another fails because of the kill, and for no other reason.
    words = application.last_words()
    failed_of_the_kill = application.code == 1 and "it was killed" in words
    assert application.code == 143 or failed_of_the_kill, f"exit code {application.code} after SIGTERM\n{words}"
    return f", went on, ended with code {application.code} after SIGTERM"


def _wait_a_moment(run: Run, application: Application, longest: float = 2.0) -> str:
    """Wait until it works, and a random time longer."""
    run.until_working(application)
    seconds = run.chance.uniform(0, longest)
    application.wait(seconds)
    return f"{seconds:.2f} s after a batch"


def _machine(run: Run, application: Application) -> str:
    moment = _wait_a_moment(run, application)
    application.kill_all()
    return moment


def _driver(run: Run, application: Application) -> str:
    moment = _wait_a_moment(run, application)
    application.kill_driver()
    return moment


def _java(run: Run, application: Application) -> str:
    moment = _wait_a_moment(run, application)
    assert application.kill_java(), f"there is no JVM to kill\n{application.last_words()}"
    if not application.wait(60):
        raise Stuck(f"the driver did not notice that its JVM is gone\n{application.last_words()}")
    return f"{moment}, driver ended with code {application.code}"


def _worker(run: Run, application: Application) -> str:
    moment = _wait_a_moment(run, application, 0.5)
    assert application.kill_worker(), f"there is no worker to kill\n{application.last_words()}"
    return f"{moment}{_aftermath(run, application)}"


def _executor(run: Run, application: Application) -> str:
    moment = _wait_a_moment(run, application, 0.5)
    assert application.kill_executor(), f"there is no executor to kill\n{application.last_words()}"
    return f"{moment}{_aftermath(run, application)}"


def _broker(run: Run, application: Application) -> str:
    assert run.broker is not None
    moment = _wait_a_moment(run, application, 0.5)
    run.broker.kill()
    application.wait(run.chance.uniform(0, 3))
    run.broker.start()
    return f"{moment}{_aftermath(run, application)}"


def _broker_and_machine(run: Run, application: Application) -> str:
    assert run.broker is not None
    moment = _wait_a_moment(run, application)
    run.broker.kill()
    application.kill_all()
    run.broker.start()
    return moment


def _database(run: Run, application: Application) -> str:
    assert run.database is not None, "this fault needs --sink postgres"
    moment = _wait_a_moment(run, application, 0.5)
    run.database.kill()
    application.wait(run.chance.uniform(0, 3))
    run.database.recover()
    return f"{moment}{_aftermath(run, application)}"


def _database_and_machine(run: Run, application: Application) -> str:
    assert run.database is not None, "this fault needs --sink postgres"
    moment = _wait_a_moment(run, application)
    run.database.kill()
    application.kill_all()
    run.database.recover()
    return moment


def _clean(run: Run, application: Application) -> str:
    moment = _wait_a_moment(run, application)
    application.terminate()
    if not application.wait(60):
        raise Stuck(f"it did not stop within 60 s of SIGTERM\n{application.last_words()}")
    assert application.code == 143, f"exit code {application.code} after SIGTERM\n{application.last_words()}"
    return moment


def _at_file(flow: int, log: str) -> Callable[[Run, Application], str]:
    """Kill when a log file appears; the application continues until the kill arrives."""

    def strike(run: Run, application: Application) -> str:
        place = Flow(run.directory) if log == "table/_spark_metadata" else run.flows[min(flow, len(run.flows) - 1)]
        batch = place.last(log) + run.chance.randint(1, 3)
        came = run.until(application, lambda: place.last(log) >= batch, f"{log}/{batch} appeared", tick=0.002)
        application.kill_all()
        return f"{place.directory.name}/{log}/{batch}" if came else f"ended with code {application.code}"

    return strike


FAULTS = [
    Fault("machine", _machine),
    Fault("driver", _driver),
    Fault("java", _java),
    Fault("worker", _worker),
    Fault("worker on a cluster", _worker, master=CLUSTER),
    Fault("executor", _executor, master=CLUSTER),
    Fault("machine on a cluster", _machine, master=CLUSTER),
    Fault("broker", _broker, harms_broker=True),
    Fault("broker under a cluster", _broker, master=CLUSTER, harms_broker=True),
    Fault("broker and machine", _broker_and_machine, harms_broker=True),
    Fault("database", _database, sink="postgres"),
    Fault("database under a cluster", _database, master=CLUSTER, sink="postgres"),
    Fault("database and machine", _database_and_machine, sink="postgres"),
    Fault("stop", _clean),
    Fault("file of planned offsets", _at_file(1, "offsets")),
    Fault("file of the table's log", _at_file(0, "table/_spark_metadata")),
    Fault("file of finished batches", _at_file(1, "commits")),
    *(Fault(name, point=name) for name in POINTS),
    *(
        Fault(f"{name}: its process", point=name, victim=SELF)
        for name in ("before decision", "decision committed", "between two EndTxns")
    ),
    *(
        Fault(f"{name}: its process, cluster", point=name, victim=SELF, master=CLUSTER)
        for name in ("after flush", "task prepared")
    ),
]


def _of_sink(fault: Fault) -> str:
    return fault.sink if fault.point is None else POINTS[fault.point].sink


def choose(
    names: str | None, rounds: int, seed: int, *, with_broker: bool, shared: bool = True, sink: str = ""
) -> list[Fault]:
    """The faults of a run: the named ones in order, or all of them in random order."""
    if names:
        known = {fault.name: fault for fault in FAULTS}
        wanted = [name.strip() for name in names.split(",")]
        if odd := [name for name in wanted if name not in known]:
            raise SystemExit(f"unknown fault {odd[0]!r}: choose from {', '.join(known)}")
        found = [known[name] for name in wanted]
    else:
        found = [fault for fault in FAULTS if with_broker or not fault.harms_broker]
        found = [fault for fault in found if shared or fault.point not in SHARED_POINTS]
        found = [fault for fault in found if _of_sink(fault) in ("", sink)]
        random.Random(seed).shuffle(found)
        # What the chosen sink adds comes first: a run may be short.
        found.sort(key=lambda fault: sink == "" or _of_sink(fault) != sink)
    return [found[number % len(found)] for number in range(rounds)]
