"""Produce-to-consume latency at a constant rate, open loop: a slow response does not delay the next record.

Each record has the time at which it was due. The latency is its age when the consumer gets it. The report shows the
median of each percentile over the repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import load
from benchmarks.peer import Peer
from benchmarks.report import LATENCY_P99, Report

SECTION = "Latency from produce to consume"
SIZE = 100
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True)
class Pace:
    rate: int = 1000
    warm_up_seconds: int = 3
    seconds: int = 12


def measure(peers: list[Peer], report: Report, pace: Pace, repetition: int) -> None:
    for peer in peers:
        _one_round(peer, report, pace, f"latency-{repetition}")


def _one_round(peer: Peer, report: Report, pace: Pace, topic: str) -> None:
    load.create_topic(peer, topic)
    seconds = pace.warm_up_seconds + pace.seconds
    skip = pace.warm_up_seconds * pace.rate
    pacer = {"role": "pace", "topic": topic, "rate": pace.rate, "seconds": seconds, "size": SIZE}
    listener = {"role": "listen", "topic": topic, "records": seconds * pace.rate, "skip": skip}
    with load.Client(peer, pacer, {**load.PRODUCER, "linger.ms": 0}) as sending:
        sending.wait_until_ready()
        with load.Client(peer, listener, load.CONSUMER) as receiving:
            receiving.wait_until_ready()
            totals = load.run_together(peer, [receiving, sending])
    _note(report, peer.name, pace, totals)
    load.delete_topic(peer, topic)


def _note(report: Report, peer: str, pace: Pace, totals: load.Totals) -> None:
    received, sent = totals.clients
    ages = sorted(received["latency"])
    for name, part in PERCENTILES.items():
        target = LATENCY_P99 if name == "p99" else None
        label = f"{name} at {pace.rate:,} records/s"
        report.measure(SECTION, label, "ms", target).add(peer, ages[int(part * (len(ages) - 1))])
    report.measure(SECTION, "CPU meanwhile", "cores").add(peer, totals.broker_cores)
    report.measure(SECTION, "sender's own lag, p99", "ms").add(peer, sent["lag_p99"])
    report.other_cores.append(totals.other_cores)
