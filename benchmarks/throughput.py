"""Records and bytes per second in and out, and the broker's CPU time per GB, case by case.

A repetition fills a new topic as fast as possible and then reads it, on one broker after the other. GB and MB are
payload before compression, 10**9 and 10**6 bytes. To add a case, add a line to `cases`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks import load, wire
from benchmarks.peer import Peer
from benchmarks.report import CPU, THROUGHPUT, Measure, Report

IN, OUT, CPU_IN, CPU_OUT = "Throughput in", "Throughput out", "Broker CPU per GB in", "Broker CPU per GB out"
SMALL_BATCHES = {"enable.idempotence": True, "linger.ms": 1, "batch.size": 4096}
SINGLE_RECORDS = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}


@dataclass(frozen=True)
class Case:
    label: str
    size: int
    records: int
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def codec(self) -> str:
        return str(self.config.get("compression.type", "none"))


def cases(*, quick: bool, full: bool) -> list[Case]:
    codecs = ["none", "lz4"] if quick else ["none", "lz4", "zstd"]
    if full:
        codecs += ["gzip", "snappy"]
    scale = 0.3 if quick else 2 if full else 1
    sizes = {"100 B": (100, 2_000_000), "1 KB": (1024, 1_000_000)}
    if full:
        sizes["10 KB"] = (10_240, 100_000)
    made = [
        Case(f"{name}, {codec}", size, int(records * scale), {"compression.type": codec})
        for name, (size, records) in sizes.items()
        for codec in codecs
    ]
    made.append(Case("100 B, idempotent, 4 KB batches", 100, int(2_000_000 * scale), SMALL_BATCHES))
    if full:
        made.append(Case("100 B, idempotent, 1 a batch", 100, 20_000, SINGLE_RECORDS))
    return made


def warm_up(peers: list[Peer], *, quick: bool) -> None:
    """Warm up just-in-time compilers before the first repetition."""
    rounds = [Case("", 1024, 500_000), Case("", 100, 1_500_000)]
    small = Case("", 100, 200_000, SMALL_BATCHES)
    for peer in peers:
        for number, case in enumerate([*rounds, small] if quick else [*rounds, small, *rounds]):
            one_round(peer, case, f"warm-up-{number}")


@dataclass(frozen=True)
class Round:
    going_in: load.Totals
    going_out: load.Totals
    codec: str  # the real compression of the batches


def measure(peers: list[Peer], report: Report, case: Case, repetition: int) -> None:
    for peer in peers:
        topic = re.sub(r"\W+", "-", f"throughput {case.label} {repetition}")
        seen = one_round(peer, case, topic)
        _note(report, IN, CPU_IN, case, peer, seen.going_in)
        _note(report, OUT, CPU_OUT, case, peer, seen.going_out)
        if seen.codec != case.codec:
            _void(report, case, peer, seen.codec)


def one_round(peer: Peer, case: Case, topic: str) -> Round:
    load.create_topic(peer, topic)
    going_in = load.produce(peer, topic, size=case.size, records=case.records, config=case.config)
    there = going_in.records + load.CLIENTS * load.PARTITIONS
    found = load.records_in(peer, topic)
    if found != there:
        raise RuntimeError(f"{peer.name} acknowledged {there} records, but {topic} holds {found}")
    going_out = load.consume(peer, topic, records=there)
    codec = wire.codec_in(peer, topic)
    load.delete_topic(peer, topic)
    return Round(going_in, going_out, codec)


def _void(report: Report, case: Case, peer: Peer, codec: str) -> None:
    """Check the codec: librdkafka silently skips one if the broker does not advertise the required API version."""
    for section in (IN, OUT, CPU_IN, CPU_OUT):
        for measure in report.measures:
            if measure.section == section and measure.name.strip() == case.label:
                measure.void = True
                measure.notes[peer.name] = f"librdkafka sent {codec!r}, not {case.codec!r}"


def _note(report: Report, section: str, cpu_section: str, case: Case, peer: Peer, totals: load.Totals) -> None:
    payload = totals.records * case.size
    rate = report.measure(section, case.label, "records/s", THROUGHPUT)
    rate.add(peer.name, totals.records / totals.seconds)
    report.measure(section, f"{case.label} ", "MB/s").add(peer.name, payload / totals.seconds / 1e6)
    report.measure(cpu_section, case.label, "s/GB", CPU).add(peer.name, totals.broker_cpu / (payload / 1e9))
    _note_limit(rate, peer, totals)
    report.other_cores.append(totals.other_cores)


def _note_limit(rate: Measure, peer: Peer, totals: load.Totals) -> None:
    """Return what limited this round, if it was not the broker."""
    cores = os.cpu_count() or 1
    clients, broker = totals.client_cores, totals.broker_cores
    if totals.busiest_client_thread >= 0.9:
        rate.notes[peer.name] = f"client-bound (its busiest thread {totals.busiest_client_thread:.0%})"
    elif clients + broker >= 0.9 * cores:
        rate.notes[peer.name] = f"all cores busy (clients {clients:.1f}, broker {broker:.1f})"
    else:
        rate.notes[peer.name] = f"clients {clients:.1f} cores, broker {broker:.1f}"
