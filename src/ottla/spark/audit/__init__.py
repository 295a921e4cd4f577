"""Audit: which records of a topic reached a table or another topic. `audit` in run.py is the entry.

>>> from ottla.spark.audit import audit
"""

from ottla.spark.audit.positions import AuditError
from ottla.spark.audit.report import AuditReport
from ottla.spark.audit.run import Origin, audit

__all__ = ["AuditError", "AuditReport", "Origin", "audit"]
