# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records to and from columns in C: the same results and errors as `_columns_pure`, without an object per record.

_column_sink.pxi    record batches to growing Arrow buffers
_column_source.pxi  Arrow buffers to the payloads of record batches, and rows to partitions

The input is not trusted: each number from a batch or an offsets buffer is compared with the end of its target before
anything is copied.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MIN
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset

from ottla.records import _problems
from ottla.records.column_values import BytesColumn, Columns, EncodedColumns, HeadersColumn, PartitionRows
from ottla.records.errors import CorruptBatch

cdef extern from "Python.h":
    int PyBUF_READ

include "_bytes.pxi"
include "_walk.pxi"
include "_column_sink.pxi"
include "_column_source.pxi"
