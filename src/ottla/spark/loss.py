"""What is said and done when records that a query should have read are gone: failOnDataLoss."""

from __future__ import annotations

import logging

from ottla.errors import OttlaError
from ottla.spark.options import ReadOptions

log = logging.getLogger("ottla.spark")


class DataLoss(OttlaError):
    """Records that the query should have read are gone, and failOnDataLoss is true."""


def report_loss(message: str, options: ReadOptions) -> None:
    """Data is gone: an error, or a warning if the query was told to go on."""
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{message}. The query stops because failOnDataLoss is true: set it to false to go on with what is left"
        )
    log.warning("%s; the query goes on, because failOnDataLoss is false", message)
