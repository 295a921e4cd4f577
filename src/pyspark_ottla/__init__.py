"""Spark finds data sources by this package name: `DefaultSource` implements `format("ottla")`."""

from ottla.spark.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
