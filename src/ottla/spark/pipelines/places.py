"""Directories on every file system that Spark knows: local ones directly, others with Spark's Hadoop classes."""

from __future__ import annotations

import os
import shutil
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

    def replace(self, name: str, text: str) -> None:
        """Write a file as a whole, over an older one."""

    def remove(self, name: str) -> None:
        """Delete a file or a subdirectory."""


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

    def replace(self, name: str, text: str) -> None:
        new = self._path / f".{name}.new"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            new.write_text(text, "utf-8")
            new.replace(self._path / name)
        except OSError as error:
            raise PlaceError(f"cannot write {self._path / name}: {error.strerror}") from None

    def remove(self, name: str) -> None:
        path = self._path / name
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            raise PlaceError(f"cannot delete {path}: {error.strerror}") from None


class Remote:
    """A directory on a file system of Hadoop, such as hdfs or s3a."""

    def __init__(self, where: str, spark: SparkSession) -> None:
        session: Any = spark
        self._jvm = session._jvm
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self._paths = self._jvm.org.apache.hadoop.fs.Path
        self._path = self._paths(where)
        self._files = self._path.getFileSystem(self._conf)

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
        try:
            stream = self._files.create(path, False)
        except Exception as error:
            if "FileAlreadyExistsException" in str(error):  # another process was faster
                return False
            raise
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        return True

    def replace(self, name: str, text: str) -> None:
        # The class that writes Spark's checkpoints: atomic wherever Hadoop's file system can be.
        path, jvm = self._paths(self._path, name), self._jvm
        managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        stream = managers.create(self._path, self._conf).createAtomic(path, True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def remove(self, name: str) -> None:
        self._files.delete(self._paths(self._path, name), True)
