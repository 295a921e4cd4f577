"""The settings of the transaction coordinator. The names are Kafka's, with underscores."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.types import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The part of the broker's configuration that a coordinator uses. The caller has checked it."""

    transaction_max_timeout_ms: Millis = 900_000
    transactional_id_expiration_ms: Millis = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Millis = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: Millis = 3_600_000
