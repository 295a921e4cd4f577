"""The ledger of exactly-once writes: round trips and errors."""

from __future__ import annotations

import pytest

from ottla.clients.producer.prepared import Prepared
from ottla.consuming.values import OffsetAndMetadata
from ottla.spark.ledger import Ledger, LedgerError


def committed(ledger: Ledger) -> OffsetAndMetadata:
    return OffsetAndMetadata(ledger.batch + 1, ledger.to_metadata())


def transactions(count: int) -> dict[int, Prepared]:
    return {index: Prepared(f"p-{index}", 4000 + index, index % 7, 2) for index in range(count)}


def test_what_is_written_is_read_again() -> None:
    empty = Ledger.newest("p", [])
    assert (empty.run, empty.batch) == ("", -1)
    taken = empty.taken_by("run")
    decided = taken.decided(7, transactions(3))
    assert Ledger.newest("p", [committed(taken)]) == taken
    # With copies under several topics, the newest one wins.
    assert Ledger.newest("p", [committed(decided), committed(taken)]) == decided
    assert decided.taken_by("next").prepared == decided.prepared


def test_as_many_tasks_as_anybody_should_have_fit() -> None:
    many = Ledger("p").decided(1, transactions(500))
    assert Ledger.newest("p", [committed(many)]) == many
    with pytest.raises(LedgerError, match=r"5000 writing tasks is too large.*coalesce"):
        Ledger("p").decided(1, transactions(5000)).to_metadata()


@pytest.mark.parametrize("metadata", ["", "[]", '{"number": 1}', '{"number": 1, "run": "r", "transactions": "AAAA"}'])
def test_what_somebody_else_committed_is_told(metadata: str) -> None:
    with pytest.raises(LedgerError, match="other clients must not commit to it"):
        Ledger.newest("p", [OffsetAndMetadata(1, metadata)])
