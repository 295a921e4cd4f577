"""The payloads of all benchmarks: the same for every broker, different for each record."""

from __future__ import annotations

import random

AT_LEAST = 1000
BYTES = 4_000_000  # more than a batch or a compression window


def values(size: int, seed: int = 7) -> list[bytes]:
    """Return payloads of exactly this size that compress about as well as log lines."""
    dice = random.Random(seed)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 9))) for _ in range(2000)]
    made = []
    for number in range(max(AT_LEAST, BYTES // size)):
        text = f'{{"id":{dice.getrandbits(40)},"sequence":{number},"text":"'
        while len(text) < size:
            text += dice.choice(words) + " "
        made.append(text[:size].encode())
    return made
