"""The ledger of a write with `deliver=exactly-once`: which run may decide, and which batch was decided last.

A value without I/O; `exactly_once.py` keeps it in the committed offset of a consumer group. What is written stays
readable for later versions: add names, change none.
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
#: What brokers take as metadata of an offset (offset.metadata.max.bytes).
LONGEST = 4096


class LedgerError(OttlaError):
    """What stands in the ledger cannot be read, or what should stand there does not fit."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of a write."""

    prefix: str
    number: int = 0
    """Counts the changes. The value may lie under several topics: the one with the highest number holds."""
    run: str = ""
    """The run of the query that may decide."""
    batch: int = NOTHING_DECIDED
    """The last batch that was decided."""
    prepared: Mapping[int, Prepared] = field(default_factory=dict)
    """Its transactions, by the index of the task."""

    def taken_by(self, run: str) -> Ledger:
        return replace(self, number=self.number + 1, run=run)

    def decided(self, batch: int, prepared: Mapping[int, Prepared]) -> Ledger:
        return replace(self, number=self.number + 1, batch=batch, prepared=dict(prepared))

    @classmethod
    def newest(cls, prefix: str, committed: Iterable[OffsetAndMetadata]) -> Ledger:
        """What holds of all that a group has committed."""
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
                f"the group {prefix} has an offset that this version did not write ({error}): it belongs to "
                "deliver=exactly-once, and nobody else may commit to it"
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
                f"a batch of {len(packed)} writing tasks is too many to be decided at once: write with fewer, by "
                "coalesce(200) before the sink"
            )
        return text
