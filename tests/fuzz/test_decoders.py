"""Arbitrary bytes for all decoders: they return a value or raise their documented error."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz import decoders
from tests.fuzz.batches import sealed
from tests.fuzz.requests import SERVED, World

from ottla.protocol import codec
from ottla.records import CorruptBatch, decode_batch, decode_keys, find_timestamp, scan, summarize

EXAMPLES = settings(max_examples=300, deadline=None)


@EXAMPLES
@given(st.sampled_from(SERVED), st.binary(max_size=300))
def test_the_body_of_a_request(served: tuple[int, int], data: bytes) -> None:
    try:
        codec.decode_request_body(*served, data, 0)
    except codec.DecodeError:
        return


@EXAMPLES
@given(st.sampled_from(SERVED), st.binary(max_size=300))
def test_a_response(served: tuple[int, int], data: bytes) -> None:
    try:
        codec.decode_response(*served, bytes(4) + data)
    except codec.DecodeError:
        return


@EXAMPLES
@given(st.binary(max_size=100))
def test_the_header_of_a_request(data: bytes) -> None:
    try:
        codec.decode_request_header(data)
    except codec.DecodeError:
        return


@EXAMPLES
@given(st.binary(min_size=61, max_size=400), st.integers(0, 4))
def test_a_record_batch_with_the_right_crc(data: bytes, compression: int) -> None:
    """Arbitrary bytes with a valid magic and compression."""
    head = bytearray(data)
    head[16], head[21:23] = 2, bytes([0, compression])
    batch = sealed(head)
    assert scan(batch, 0, len(batch)).end in (0, len(batch))
    for read in (decode_batch, decode_keys, summarize):
        try:
            read(batch, max_size=decoders.MAX_UNPACKED)
        except CorruptBatch:
            continue
    try:
        find_timestamp(batch, 0, 0, max_size=decoders.MAX_UNPACKED)
    except CorruptBatch:
        return


@EXAMPLES
@given(st.randoms(use_true_random=False), st.sampled_from(decoders.TARGETS))
def test_what_the_fuzzer_makes(rng: random.Random, target: decoders.Target) -> None:
    target(random.Random(rng.getrandbits(64)), World())
