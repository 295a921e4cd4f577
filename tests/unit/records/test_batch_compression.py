"""Compression: round trips, formats of other writers, and decompression bombs."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys

import cramjam
import pytest
from batch_material import spoil, spoilings
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import LEVELS, Compression, DecompressionError, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b"line %d of %d, " % (i, i * i) for i in range(20_000))

every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


@every_codec
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 64 * 1024, 64 * 1024 + 1, len(TEXT)])
def test_data_comes_back(codec: Compression, size: int) -> None:
    for data in (TEXT[:size], bytearray(TEXT[:size]), memoryview(TEXT)[:size]):
        assert decompress(codec, compress(codec, data)) == TEXT[:size]


@settings(max_examples=60)
@given(st.sampled_from(Compression), st.binary(max_size=2000), st.integers(1, 60))
def test_any_data_comes_back(codec: Compression, data: bytes, times: int) -> None:
    assert decompress(codec, memoryview(compress(codec, data * times))) == data * times


@pytest.mark.parametrize("codec", LEVELS, ids=lambda codec: codec.name.lower())
def test_levels_are_those_of_kafka(codec: Compression) -> None:
    lowest, highest, default = LEVELS[codec]
    assert compress(codec, TEXT) == compress(codec, TEXT, default)
    sizes = [len(compress(codec, TEXT, level)) for level in (max(lowest, -50), highest)]
    assert sizes[0] > sizes[1]
    for level in (lowest, highest):
        assert decompress(codec, compress(codec, TEXT[:50_000], level)) == TEXT[:50_000]
    for level in (lowest - 1, highest + 1):
        if (codec, level) != (Compression.GZIP, -1):
            with pytest.raises(ValueError, match=f"level must be from {lowest} to {highest}, not {level}"):
                compress(codec, b"", level)


def test_gzip_takes_minus_one_as_its_default() -> None:
    assert compress(Compression.GZIP, TEXT, -1) == compress(Compression.GZIP, TEXT)


def test_gzip_may_have_members() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, members) == b"one two"
    with pytest.raises(DecompressionError, match="more than 64 members"):
        decompress(Compression.GZIP, gzip.compress(b"") * 100)


def test_snappy_is_written_in_xerial_blocks_and_read_bare_as_well() -> None:
    packed = compress(Compression.SNAPPY, TEXT[:40_000])
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = struct.unpack_from(">i", packed, 16)[0]
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[: 32 * 1024]
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


@pytest.mark.parametrize("level", [None, 1, 9, 12])
def test_lz4_blocks_do_not_depend_on_each_other(level: int | None) -> None:
    packed = compress(Compression.LZ4, TEXT, level)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20, "the Java client refuses linked blocks"


def test_lz4_frames_with_linked_blocks_are_read() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20
    assert decompress(Compression.LZ4, linked) == TEXT


def test_zstd_may_have_frames() -> None:
    skippable = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    frames = compress(Compression.ZSTD, b"one ") + skippable + compress(Compression.ZSTD, b"two")
    assert decompress(Compression.ZSTD, frames) == b"one two"


@every_codec
def test_the_limit_is_exact(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    for limit in (0, 1, 1000, len(TEXT) - 1):
        with pytest.raises(DecompressionError, match=f"more than (the limit of )?{limit} bytes"):
            decompress(codec, packed, limit)


def test_uncompressed_data_has_the_limit_too() -> None:
    assert decompress(Compression.NONE, b"123", 3) == b"123"
    with pytest.raises(DecompressionError):
        decompress(Compression.NONE, b"123", 2)


@every_codec
def test_truncated_data_is_damaged(codec: Compression) -> None:
    packed = compress(codec, TEXT[:70_000])
    for end in [*range(30), len(packed) // 2, len(packed) - 1]:
        if codec is Compression.SNAPPY and end == 16:
            continue  # a header without blocks is the empty string
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:end])


@settings(max_examples=200)
@given(
    st.sampled_from(CODECS),
    st.one_of(st.binary(max_size=100), st.integers(0, 70_000).map(lambda size: TEXT[:size])),
    st.lists(spoilings, min_size=1, max_size=3),
)
def test_spoiled_data_gives_something_bounded_or_an_error(
    codec: Compression, data: bytes, damages: list[tuple[int, str, int]]
) -> None:
    packed = compress(codec, data)
    for spot, how, value in damages:
        packed = spoil(packed, spot if spot % 2 else spot % 40, how, value)
    try:
        assert len(decompress(codec, packed, 100_000)) <= 100_000
    except DecompressionError:
        pass


@settings(max_examples=200)
@given(st.sampled_from(CODECS), st.binary(max_size=60))
def test_noise_gives_something_bounded_or_an_error(codec: Compression, noise: bytes) -> None:
    magic = {Compression.LZ4: b"\x04\x22\x4d\x18", Compression.ZSTD: b"\x28\xb5\x2f\xfd"}.get(codec, b"")
    for data in (noise, magic + noise):
        try:
            assert len(decompress(codec, data, 10_000)) <= 10_000
        except DecompressionError:
            pass


# Each unpacks to hundreds of megabytes or claims to. They run in a process whose memory is watched.
BOMBS = """
import resource, zlib
from ottla.records import Compression, DecompressionError, compress, decompress

def gzip_bomb():
    packer = zlib.compressobj(1, wbits=31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()

def snappy_bomb():
    block = compress(Compression.SNAPPY, bytes(32 << 10))
    return block[:16] + block[16:] * (32 << 10)

def lz4_bomb():
    frame = compress(Compression.LZ4, bytes(64 << 10))
    return frame[:7] + frame[7:-4] * (16 << 10) + bytes(4)

def zstd_bomb(header):
    run = lambda last: (128 << 10 << 3 | 1 << 1 | last).to_bytes(3, "little") + b"x"
    return bytes.fromhex("28b52ffd") + header + run(0) * 8191 + run(1)

bombs = [
    (Compression.GZIP, gzip_bomb()),
    (Compression.SNAPPY, snappy_bomb()),
    (Compression.SNAPPY, bytes.fromhex("ffffffff0f") + bytes(1000)),
    (Compression.LZ4, lz4_bomb()),
    (Compression.ZSTD, zstd_bomb(bytes.fromhex("0058"))),
    (Compression.ZSTD, zstd_bomb(bytes.fromhex("e0 0000000000000010"))),
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, bomb in bombs:
    for limit in (1 << 20, 16 << 20):
        try:
            decompress(codec, bomb, limit)
        except DecompressionError:
            continue
        raise SystemExit(f"{codec.name} went off")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_bombs_do_not_take_memory() -> None:
    run = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 64 * 1024, "more than 64 MiB for a limit of 16 MiB"
