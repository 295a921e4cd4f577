"""The faults that end a round of pipelines.py: functions in this module, and the points of pipeline_doom.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .pipeline_doom import MACHINE, POINTS, SELF, SHARED_POINTS, kill_session
from .pipeline_process import Application, Flow, Stuck

if TYPE_CHECKING:
    from .pipelines import Run

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,512]"
#: Generous: other programs may use the machine, too.
STOP_SECONDS = 180.0


@dataclass(frozen=True)
class Fault:
    """A way to end a round."""

    name: str
    strike: Callable[[Run, Application], str] | None = None
    """The action from outside; None if the application kills itself."""
    point: str | None = None
    victim: str = MACHINE
    master: str = LOCAL
    """Not with `--cluster`, where all faults have the same master."""
    harms_broker: bool = False
    sink: str = ""
    """The kind of sink that it is for (`--sink`); empty: all."""


def await_doom(run: Run, application: Application) -> str:
    """Wait until the point was reached and the application has ended, or continues if only a part was killed."""
    if not run.until(application, lambda: application.was_struck is not None, "the point was reached"):
        code = application.process.wait()
        never = f"never came to it ({application.calls} calls), ended with code {code}"
        return never if application.was_struck is None else "at the point"
    run.mark(application)
    _, count, session = (application.was_struck or "").split(", ")
    in_driver = int(session) == application.process.pid
    if application.is_doomed_as_a_whole and in_driver:
        # It kills itself, but a signal that the kernel sends to its process groups may arrive first.
        application.kill_all()
        return f"at {count}"
    if application.is_doomed_as_a_whole:
        assert run.cluster is not None
        kill_session(int(session))
        run.cluster.revive(int(session))
    return f"at {count}{'' if in_driver else ' on a worker'}{_aftermath(run, application)}"


def _aftermath(run: Run, application: Application) -> str:
    """How it continued: it works, or has ended."""
    run.mark(application)
    if run.until_working(application):
        return _stop(run, application)
    code = application.process.wait()
    return "" if code == -9 else f", ended with code {code}"


def _stop(run: Run, application: Application) -> str:
    """Let it continue, then stop or kill it."""
    if run.chance.random() < 0.5:
        application.kill_all()
        return ", went on, killed"
    application.terminate()
    if not application.wait(STOP_SECONDS):
        raise Stuck(f"it did not stop within {STOP_SECONDS:g} s of SIGTERM\n{application.last_words()}")
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
    if not application.wait(STOP_SECONDS):
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


def _worker_machine(run: Run, application: Application) -> str:
    """A machine of the cluster: the worker, its executor and their Python processes."""
    assert run.cluster is not None, "this fault needs --cluster"
    moment = _wait_a_moment(run, application, 0.5)
    session = run.chance.choice(run.cluster.worker_sessions)
    kill_session(session)
    run.mark(application)
    run.cluster.revive(session)
    return f"{moment}{_aftermath(run, application)}"


def _all_machines(run: Run, application: Application) -> str:
    """The driver and the workers at the same time."""
    assert run.cluster is not None, "this fault needs --cluster"
    moment = _wait_a_moment(run, application)
    sessions = run.cluster.worker_sessions
    for session in sessions:
        kill_session(session)
    application.kill_all()
    run.cluster.revive(*sessions)
    return moment


def _broker(run: Run, application: Application) -> str:
    assert run.broker is not None
    moment = _wait_a_moment(run, application, 0.5)
    run.broker.kill()
    run.mark(application)
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
    run.mark(application)
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
    if not application.wait(STOP_SECONDS):
        raise Stuck(f"it did not stop within {STOP_SECONDS:g} s of SIGTERM\n{application.last_words()}")
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
#: With `--cluster`. A machine is the driver's, or that of a worker for points in a task.
ON_A_CLUSTER = [
    *(fault for fault in FAULTS if fault.master == LOCAL and fault.point is None),
    Fault("executor", _executor),
    Fault("machine of a worker", _worker_machine),
    Fault("all machines", _all_machines),
    *(Fault(name, point=name) for name in POINTS),
    *(Fault(f"{name}: its process", point=name, victim=SELF) for name, point in POINTS.items() if point.in_task),
]


def sink_of(fault: Fault) -> str:
    """The kind of sink that a fault is for; empty: all."""
    return fault.sink if fault.point is None else POINTS[fault.point].sink


def choose(
    names: str | None,
    rounds: int,
    seed: int,
    *,
    with_broker: bool,
    shared: bool = True,
    sinks: Sequence[str] = (),
    cluster: bool = False,
) -> list[Fault]:
    """The faults of a run: the named ones in order, or all of them in random order.

    Each kind of sink has its turn: a fault of its own, one of another kind, and so on, and then one of those that are
    for all sinks: one from outside, and one at a point.
    """
    pool = ON_A_CLUSTER if cluster else FAULTS
    if names:
        known = {fault.name: fault for fault in pool}
        wanted = [name.strip() for name in names.split(",")]
        if odd := [name for name in wanted if name not in known]:
            raise SystemExit(f"unknown fault {odd[0]!r}: choose from {', '.join(known)}")
        turns = [[known[name] for name in wanted]]
    else:
        found = [fault for fault in pool if with_broker or not fault.harms_broker]
        found = [fault for fault in found if shared or fault.point not in SHARED_POINTS]
        random.Random(seed).shuffle(found)
        turns = [[fault for fault in found if sink_of(fault) == kind] for kind in sinks]
        for_all = [fault for fault in found if not sink_of(fault)]
        turns += [[fault for fault in for_all if fault.point is None], [fault for fault in for_all if fault.point]]
    return [
        turns[number % len(turns)][number // len(turns) % len(turns[number % len(turns)])] for number in range(rounds)
    ]
