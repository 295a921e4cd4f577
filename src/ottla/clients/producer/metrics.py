"""The metrics of a producer, with Kafka's names."""

from __future__ import annotations

from ottla.producing.sender import Finished, Request
from ottla.types import Millis


class Counters:
    """Totals since the producer was created; written only by the loop."""

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.acknowledged = 0
        self.errors = 0
        self.latency_ms = 0
        self.latency_max_ms = 0
        self.queue_ms = 0

    def sent(self, request: Request) -> None:
        self.requests += 1
        self.batches += len(request.batches)
        for batch in request.batches:
            self.records += batch.count
            self.bytes += batch.size
            self.queue_ms += request.sent - batch.created

    def answered(self, request: Request, *, now: Millis) -> None:
        self.responses += 1
        self.latency_ms += now - request.sent
        self.latency_max_ms = max(self.latency_max_ms, now - request.sent)

    def finished(self, outcome: Finished) -> None:
        count = outcome.batch.count
        if outcome.error is None:
            self.acknowledged += count
        else:
            self.errors += count

    def as_metrics(self) -> dict[str, float]:
        return {
            "request-total": self.requests,
            "response-total": self.responses,
            "record-send-total": self.records,
            "byte-total": self.bytes,
            "record-error-total": self.errors,
            "records-acknowledged-total": self.acknowledged,
            "batch-size-avg": _share(self.bytes, self.batches),
            "records-per-request-avg": _share(self.records, self.requests),
            "request-latency-avg": _share(self.latency_ms, self.responses),
            "request-latency-max": self.latency_max_ms,
            "record-queue-time-avg": _share(self.queue_ms, self.batches),
        }


def _share(total: float, parts: int) -> float:
    return total / parts if parts else 0.0
