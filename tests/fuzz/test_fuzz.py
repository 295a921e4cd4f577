"""A small, fixed part of `make fuzz`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.fuzz import decoders
from tests.fuzz.batches import valid_batch
from tests.fuzz.heavy import heavy_inputs
from tests.fuzz.inputs import Input, Inputs
from tests.fuzz.live import Live, produce
from tests.fuzz.requests import SERVED, Generator, World, body_pieces, header_pieces, joined
from tests.fuzz.run import check_resources, fuzz, fuzz_over_restarts
from tests.wire import Wire

from ottla.protocol import codec

LIVE_INPUTS = 1200
DECODER_INPUTS = 3000
SEED = 20


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with Live(tmp_path_factory.mktemp("fuzz")) as live:
        yield live


@pytest.mark.parametrize("seed", range(3))
def test_pieces_join_to_what_the_codec_writes(seed: int) -> None:
    """Otherwise the mutations would not be of valid requests."""
    generator = Generator(random.Random(seed), World())
    for api_key, version in SERVED:
        request = generator.request(api_key, version)
        pieces = header_pieces(api_key, version, 7) + body_pieces(request)
        assert joined(pieces) == codec.encode_request(api_key, version, 7, "fuzz", request.message)[4:]


def test_an_input_is_the_same_every_time() -> None:
    first, second = Inputs(SEED, World()), Inputs(SEED, World())
    numbers = [n for n in range(40) if first[n].kind in ("mutated request", "mangled request", "wrong version")]
    assert [first[n].kind for n in numbers] == [second[n].kind for n in numbers]
    assert Input.from_json(first[0].to_json()) == first[0]


def test_decoders_refuse_what_is_wrong_and_raise_nothing_else() -> None:
    decoders.run(SEED, DECODER_INPUTS)


@pytest.mark.timeout(180)
def test_a_broker_under_fire_stays_what_it_is(live: Live) -> None:
    fuzz(live, SEED, LIVE_INPUTS)


@pytest.mark.timeout(180)
def test_large_and_exploding_inputs_are_survived(live: Live) -> None:
    chosen = ("gzip bomb, compacted", "zstd bomb, compacted", "Metadata, 1,999,950 items")
    baseline = live.resources()
    for input_ in heavy_inputs(live.world, chosen):
        assert live.throw(input_, patience=60.0) != "waits"
    check_resources(live, (baseline[0] + (128 << 20), baseline[1]))


@pytest.mark.timeout(180)
def test_hostile_batches_in_the_logs_do_not_hinder_a_restart(live: Live) -> None:
    fuzz_over_restarts(live, SEED, LIVE_INPUTS)
    live.tidy_up()
    with Wire(live.broker.port) as wire:
        assert produce(wire, "fuzz-0", valid_batch(random.Random(1))).error_code == 0
