"""failOnDataLoss: fail or warn if records were deleted before a query read them."""

from __future__ import annotations

import logging

from ottla.errors import OttlaError
from ottla.spark.options import ReadOptions

log = logging.getLogger("ottla.spark")


class DataLoss(OttlaError):
    """Records were deleted before the query read them, and failOnDataLoss is true."""


def report_loss(message: str, options: ReadOptions) -> None:
    """Raise DataLoss, or log a warning if failOnDataLoss is false."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{message}. The query stops because failOnDataLoss is true; set it to false to continue")
    log.warning("%s; the query continues, because failOnDataLoss is false", message)
