"""The ledger of a write with `deliver=exactly-once`: which run may decide, and the last decided batch. No I/O.

`exactly_once.py` stores it in the committed offset of a consumer group. Later versions must be able to read it: add
names, but do not change any.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.clients.producer.prepared import Prepared
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import OttlaError

NOTHING_DECIDED = -1
#: The limit of offset metadata (offset.metadata.max.bytes).
LONGEST = 4096


class LedgerError(OttlaError):
    """The ledger is unreadable, or the new one is too large."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of a write."""

    prefix: str
    number: int = 0
    """Counts the changes. With copies under several topics, the highest number wins."""
    run: str = ""
    """The query run that may decide."""
    batch: int = NOTHING_DECIDED
    """The last decided batch."""
    prepared: Mapping[int, Prepared] = field(default_factory=dict)
    """Its transactions, by task index."""

    def taken_by(self, run: str) -> Ledger:
        return replace(self, number=self.number + 1, run=run)

    def decided(self, batch: int, prepared: Mapping[int, Prepared]) -> Ledger:
        return replace(self, number=self.number + 1, batch=batch, prepared=dict(prepared))

    @classmethod
    def newest(cls, prefix: str, committed: Iterable[OffsetAndMetadata]) -> Ledger:
        """The newest ledger in a group's offsets."""
        found = [cls._read(prefix, one) for one in committed]
        return max(found, key=lambda one: one.number, default=cls(prefix))

    @classmethod
    def _read(cls, prefix: str, committed: OffsetAndMetadata) -> Ledger:
        try:
            value = json.loads(committed.metadata)
            packed = json.loads(zlib.decompress(base64.b64decode(value["transactions"])))
            prepared = {
                index: Prepared(f"{prefix}-{index}", producer_id, epoch, version)
                for index, producer_id, epoch, version in packed
            }
            return cls(prefix, value["number"], value["run"], committed.offset - 1, prepared)
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise LedgerError(
                f"group {prefix} has an offset that this version did not write ({error}): the group belongs to "
                "deliver=exactly-once, and other clients must not commit to it"
            ) from error

    def to_metadata(self) -> str:
        packed = [
            [index, one.producer_id, one.producer_epoch, one.version] for index, one in sorted(self.prepared.items())
        ]
        shrunk = zlib.compress(json.dumps(packed, separators=(",", ":")).encode(), 9)
        value = {"number": self.number, "run": self.run, "transactions": base64.b64encode(shrunk).decode()}
        text = json.dumps(value, separators=(",", ":"))
        if len(text) > LONGEST:
            raise LedgerError(
                f"a batch with {len(packed)} writing tasks is too large to decide at once: use fewer tasks, such as "
                "with coalesce(200) before the sink"
            )
        return text
