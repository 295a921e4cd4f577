"""Send many hostile inputs to a running broker and to the decoders.

    python -m tests.fuzz.run --inputs 100000 --seed 1
    python -m tests.fuzz.run --replay /tmp/ottla-fuzz-failure.jsonl

After a failure, the previous inputs are written to a file, and can be replayed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import decoders
from .heavy import heavy_inputs
from .inputs import Input, Inputs
from .live import Broken, Live
from .storm import Storm

FAILURE = Path(tempfile.gettempdir(), "ottla-fuzz-failure.jsonl")
CHECK_EVERY = 1000
TIDY_EVERY = 500
MAX_GROWTH = 64 * 1024 * 1024
MAX_FILES = 70  # each partition that groups are in has one; a leak would be of thousands
HEAVY_PATIENCE = 60.0
RESTART_INPUTS = 150
STORM_SECONDS = 2.0


def fuzz(live: Live, seed: int, count: int) -> None:
    """Send the inputs of a seed; raises Broken."""
    inputs = Inputs(seed, live.world)
    baseline: tuple[int, int] | None = None
    begin = time.monotonic()
    for number in range(count):
        live.throw(inputs[number])
        if number % CHECK_EVERY == CHECK_EVERY - 1:
            live.check()
            _progress(live, number + 1, count, time.monotonic() - begin)
        if number % TIDY_EVERY == TIDY_EVERY - 1:
            live.tidy_up()
        if number == count // 5:
            baseline = live.resources()  # by now everything is in memory that is there once
    assert baseline is not None
    check_resources(live, baseline)


def fuzz_over_restarts(live: Live, seed: int, count: int) -> None:
    """Write hostile batches, restart with and without recovery, and read; with many connections at once."""
    inputs = Inputs(seed, live.world)
    for number, kill in enumerate((True, False)):
        Storm(live.broker.port, seed + number).run(STORM_SECONDS)
        for following in range(RESTART_INPUTS):
            live.throw(inputs[count + number * RESTART_INPUTS + following])
        live.restart(kill=kill)


def check_resources(live: Live, baseline: tuple[int, int]) -> None:
    live.check()
    resident, files = live.resources()
    print(
        f"resident {baseline[0] >> 20} MiB then, {resident >> 20} MiB now; open files {baseline[1]} then, {files} now",
        flush=True,
    )
    if resident - baseline[0] > MAX_GROWTH:
        raise Broken(f"resident memory has grown by {(resident - baseline[0]) >> 20} MiB")
    if files - baseline[1] > MAX_FILES:
        raise Broken(f"open files have grown from {baseline[1]} to {files}")


def throw_heavy(live: Live, names: Sequence[str] = ("",)) -> None:
    """Send inputs of many megabytes, and those that would expand to that."""
    for input_ in heavy_inputs(live.world, names):
        live.health.slowest = 0.0
        begin = time.monotonic()
        outcome = live.throw(input_, patience=HEAVY_PATIENCE)
        seconds = time.monotonic() - begin
        live.check()
        print(
            f"  {input_.kind:46} {len(input_.data) / 1e6:6.1f} MB  {outcome:8} {seconds:6.2f} s, "
            f"others waited {live.health.slowest:5.2f} s",
            flush=True,
        )
        if outcome == "waits":
            raise Broken(f"{input_.kind} was not answered within {HEAVY_PATIENCE:g} s")


def _progress(live: Live, done: int, count: int, seconds: float) -> None:
    if done % (10 * CHECK_EVERY) == 0 or done == count:
        slowest, live.health.slowest = live.health.slowest, 0.0
        print(f"  {done:8,} of {count:,} in {seconds:5.0f} s; others waited {slowest:.2f} s at most", flush=True)


def _save(live: Live, path: Path) -> None:
    path.write_text("".join(input_.to_json() + "\n" for input_ in live.suspects))


def _replay(live: Live, path: Path) -> None:
    for line in path.read_text().splitlines():
        input_ = Input.from_json(line)
        print(f"{input_.kind}: {live.throw(input_, patience=2.0)}", flush=True)
        live.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="thrown at the broker; as many at the decoders")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--replay", type=Path, help="a file that an earlier run has written")
    parser.add_argument("--failure", type=Path, default=FAILURE, help="where to write such a file")
    parser.add_argument("--heavy", nargs="*", metavar="NAME", help="only those inputs of many megabytes; all if none")
    parser.add_argument("--no-heavy", action="store_true", help="leave out the inputs of many megabytes")
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as directory, Live(Path(directory)) as live:
        try:
            if args.replay:
                _replay(live, args.replay)
                return 0
            if args.heavy is not None:
                throw_heavy(live, args.heavy or ("",))
                return 0
            if not args.no_heavy:
                throw_heavy(live)
                live.outcomes.clear()
            fuzz(live, seed, args.inputs)
            fuzz_over_restarts(live, seed, args.inputs)
        except AssertionError as problem:
            _save(live, args.failure)
            print(f"\nFAILED (seed {seed}; the last inputs are in {args.failure}): {problem}", file=sys.stderr)
            return 1
        thrown = sum(live.outcomes.values())
        for what, times in sorted(live.outcomes.items()):
            print(f"  {what:60} {times:8,}")
    decoders.run(seed, args.inputs)
    seconds = time.monotonic() - begin
    print(f"{thrown:,} inputs thrown at a broker, {args.inputs:,} at the decoders, in {seconds:.0f} s: nothing broke")
    return 0


if __name__ == "__main__":
    sys.exit(main())
