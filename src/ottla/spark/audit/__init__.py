"""Audit: check that the records of a topic reached a table or another topic.

>>> from ottla.spark.audit import audit
"""

from ottla.spark.audit.run import Origin, audit

__all__ = ["Origin", "audit"]
