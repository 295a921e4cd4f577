"""Directories on every file system that Spark knows: local ones directly, others with Spark's Hadoop classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.errors import OttlaError
from ottla.spark.pipelines.run_lock import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlaceError(OttlaError):
    """A directory cannot be read or written."""


class Place(Protocol):
    """A directory. It may be missing: then it has no names."""

    def names(self, below: str = "") -> list[str]:
        """The names of the entries, here or in the subdirectory `below`."""

    def read(self, name: str) -> str | None:
        """The content of a file; None if it does not exist."""

    def create(self, name: str, text: str) -> bool:
        """Create a file, and the directory; False if the file exists already."""


def place(where: str, spark: SparkSession | None = None) -> Place | None:
    """The directory `where`; None if only Spark can reach it, and there is no classic session.

    >>> place("/no/such/directory").names(), place("hdfs://host/table")
    ([], None)
    """
    path = local_path(where)
    if path is not None:
        return Local(path)
    return Remote(where, spark) if spark is not None and hasattr(spark, "_jsparkSession") else None


class Local:
    """A local directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self, below: str = "") -> list[str]:
        try:
            return os.listdir(self._path / below)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PlaceError(f"cannot read {self._path / below}: {error.strerror}") from None

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlaceError(f"cannot read {self._path / name}: {error.strerror}") from None

    def create(self, name: str, text: str) -> bool:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            with (self._path / name).open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            return False
        except OSError as error:
            raise PlaceError(f"cannot write {self._path / name}: {error.strerror}") from None
        return True


class Remote:
    """A directory on a file system of Hadoop, such as hdfs or s3a."""

    def __init__(self, where: str, spark: SparkSession) -> None:
        session: Any = spark
        self._paths = session._jvm.org.apache.hadoop.fs.Path
        self._path = self._paths(where)
        self._files = self._path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def names(self, below: str = "") -> list[str]:
        path = self._paths(self._path, below) if below else self._path
        if not self._files.exists(path):
            return []
        return [str(one.getPath().getName()) for one in self._files.listStatus(path)]

    def read(self, name: str) -> str | None:
        path = self._paths(self._path, name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8", errors="replace")
        finally:
            stream.close()

    def create(self, name: str, text: str) -> bool:
        path = self._paths(self._path, name)
        if self._files.exists(path):
            return False
        stream = self._files.create(path, False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        return True
