from collections.abc import Mapping
from typing import Any

from ottla.protocol._commits_pure import Commit, KnownTopic
from ottla.protocol._fields import Buffer, Decoder, Encoder, Field, Framer
from ottla.protocol._headers_pure import RequestHeader

def compile_decoder(
    name: str, fields: list[Field], version: int, flexible: bool, max_items: int | None = None
) -> Decoder: ...
def compile_encoder(name: str, fields: list[Field], version: int, flexible: bool) -> Encoder: ...
def compile_framer(name: str, fields: list[Field], version: int, flexible: bool) -> Framer: ...
def read_header(buffer: bytes | bytearray | memoryview, flexible_from: Mapping[int, int]) -> RequestHeader: ...
def read_commit(
    buffer: bytes | bytearray | memoryview,
    position: int,
    version: int,
    correlation_id: int,
    topics: Mapping[Any, KnownTopic],
    longest_metadata: int,
) -> tuple[Commit, Buffer] | None: ...
