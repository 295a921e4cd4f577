"""The record codec alone: both twins and aiokafka's compiled codec, in records per second.

    python benchmarks/records.py [--size 100] [--records 1000]

Each figure is the best of several rounds in one process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ottla.records import Compression, Record, _pure, codec, decode_batch, decode_keys, encode_batch, scan, summarize

ROUNDS = 7
ROUND_SECONDS = 0.15


def rate(work: Callable[[], object], units: int) -> float:
    """Return the units per second of CPU time in the best round."""
    best = 0.0
    for _ in range(ROUNDS):
        began = time.process_time()
        repeats = 0
        while (elapsed := time.process_time() - began) < ROUND_SECONDS:
            work()
            repeats += 1
        best = max(best, repeats * units / elapsed)
    return best


def twins() -> Iterator[tuple[str, Any]]:
    yield "pure", _pure
    try:
        from ottla.records import _speedups
    except ImportError:
        print("(the compiled twin is not built)")
    else:
        yield "cython", _speedups


def aiokafka_encode(records: list[Record], compression: Compression) -> bytes:
    builder = DefaultRecordBatchBuilder(2, int(compression), 0, -1, -1, -1, 1 << 30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, [])
    return bytes(builder.build())


def aiokafka_decode(batch: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(batch)]


def measured(work: Callable[[], object], units: int) -> dict[str, float]:
    figures = {}
    for name, twin in twins():
        with mock.patch.object(codec, "kernels", twin):
            figures[name] = rate(work, units)
    return figures


def line(what: str, ours: dict[str, float], theirs: float | None = None) -> None:
    figures = "  ".join(f"{name} {value / 1e6:8.2f}" for name, value in ours.items())
    ratio = f"  aiokafka {theirs / 1e6:6.2f}  ratio {max(ours.values()) / theirs:5.2f}" if theirs else ""
    print(f"{what:<28} {figures}{ratio}")


def both_ways(records: list[Record], compression: Compression) -> None:
    batch = encode_batch(records, compression=compression)
    encode = measured(partial(encode_batch, records, compression=compression), len(records))
    line(
        f"encode {compression.name.lower()}", encode, rate(partial(aiokafka_encode, records, compression), len(records))
    )
    decode = measured(partial(decode_batch, batch), len(records))
    line(f"decode {compression.name.lower()}", decode, rate(partial(aiokafka_decode, batch), len(records)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="bytes in a value")
    parser.add_argument("--records", type=int, default=1000, help="records in a batch")
    options = parser.parse_args()
    value = (b"%d," % options.size * options.size)[: options.size]
    records = [Record(i, 1_700_000_000_000 + i, b"%d" % i, value) for i in range(options.records)]
    print(f"Millions per second of CPU; values of {options.size} bytes, {len(records)} records in a batch")
    for compression in Compression:
        both_ways(records, compression)
    batch = encode_batch(records)
    line("keys", measured(partial(decode_keys, batch), len(records)))
    line("summaries", measured(partial(summarize, batch), len(records)))
    small = encode_batch(records[:1]) * 5000
    line("scan, batches of one record", measured(partial(scan, small, 0, len(small)), 5000))


if __name__ == "__main__":
    main()
