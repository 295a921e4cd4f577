"""The page of transactions without a broker: what blocks a partition, and what hangs."""

from __future__ import annotations

from ottla.clients.admin.transactions import LONGEST_MS, ListedTransaction, OpenTransaction, TransactionDescription
from ottla.clients.admin.values import ProducerState
from ottla.console.views.transactions import blocked_partitions, chosen
from ottla.types import TopicPartition

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 3)


def opened(partition: TopicPartition, producer: int, start: int, at: int = 0) -> OpenTransaction:
    return OpenTransaction(partition, ProducerState(producer, 0, 5, at, 1, start))


def test_blocked_partitions_with_their_transactions() -> None:
    known = TransactionDescription("billing", 1, "Ongoing", 7, 0, 60_000, 1_000, (ORDERS,))
    ends = {ORDERS: (10, 50), BILLS: (3, 100), TopicPartition("fine", 0): (8, 8)}
    found = blocked_partitions(ends, [opened(ORDERS, 8, 20), opened(ORDERS, 7, 10), opened(BILLS, 9, 3)], [known])
    assert [(one.partition, one.records) for one in found] == [(BILLS, 97), (ORDERS, 40)]
    first, second = found[1].transactions
    assert (first.transactional_id, first.since, first.is_first) == ("billing", 1_000, True)
    assert (second.start_offset, second.is_unknown, second.is_first) == (20, True, False)


def test_a_transaction_hangs_if_nobody_will_end_it() -> None:
    known = TransactionDescription("billing", 1, "Ongoing", 7, 0, 60_000, 0, (ORDERS,))
    (blocked,) = blocked_partitions({ORDERS: (0, 9)}, [opened(ORDERS, 7, 0), opened(ORDERS, 8, 2)], [known])
    assert [one.hangs(LONGEST_MS) for one in blocked.transactions] == [False, True]
    assert not blocked.transactions[1].hangs(LONGEST_MS - 1)


def test_a_producer_is_known_only_in_the_partitions_of_its_transaction() -> None:
    elsewhere = TransactionDescription("billing", 1, "Ongoing", 7, 0, 60_000, 0, (BILLS,))
    (blocked,) = blocked_partitions({ORDERS: (0, 9)}, [opened(ORDERS, 7, 0)], [elsewhere])
    assert blocked.transactions[0].is_unknown


def test_ids_that_are_not_over_come_first() -> None:
    ids = [
        ListedTransaction("a-done", 1, "CompleteCommit"),
        ListedTransaction("z-open", 2, "Ongoing"),
        ListedTransaction("b", 3, "Empty"),
    ]
    assert [one.transactional_id for one in chosen(ids, "", "")] == ["z-open", "a-done", "b"]
    assert [one.transactional_id for one in chosen(ids, "DONE", "")] == ["a-done"]
    assert chosen(ids, "", "Ongoing")[0].transactional_id == "z-open"
