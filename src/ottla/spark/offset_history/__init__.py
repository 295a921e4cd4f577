"""The history of ``__consumer_offsets`` as tables: commits, lag over time, generations. See docs/audit.md."""

from ottla.spark.offset_history.history import HistoryError, OffsetHistory, offset_history, record_history

__all__ = ["HistoryError", "OffsetHistory", "offset_history", "record_history"]
