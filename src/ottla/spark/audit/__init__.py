"""Audit: check that the records of a topic reached a table or another topic.

>>> from ottla.spark.audit import audit
"""

from ottla.spark.audit.positions import AuditError
from ottla.spark.audit.report import AuditReport
from ottla.spark.audit.run import audit
from ottla.spark.audit.sides import Origin

__all__ = ["AuditError", "AuditReport", "Origin", "audit"]
