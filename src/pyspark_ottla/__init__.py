"""Spark looks for packages of this kind of name by itself: `DefaultSource` is what `format("ottla")` stands for."""

from ottla.spark.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
