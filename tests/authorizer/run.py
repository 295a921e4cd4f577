"""Compare the authorizer with the reference on random cases: ``python -m tests.authorizer.run --cases 1000000``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.authorizer.cases import disagreement

#: Questions about one set of rules. Each is asked by name, and for any resource of the type.
QUESTIONS = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    started = time.monotonic()
    worlds = -(-args.cases // QUESTIONS)
    for seed in range(args.seed, args.seed + worlds):
        if (difference := disagreement(seed, QUESTIONS)) is not None:
            print(difference)
            return 1
    print(f"{worlds * QUESTIONS:,} cases agree with the reference, in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
