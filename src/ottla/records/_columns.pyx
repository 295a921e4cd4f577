# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records to and from columns in C: the same results and errors as `_columns_pure`, without an object a record.

_column_sink.pxi    record batches into Arrow buffers that grow
_column_source.pxi  Arrow buffers into the payloads of record batches, and rows to partitions

Neither trusts what it reads: a number from a batch or from an offsets buffer is compared with the end of what it
points into before anything is copied.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from ottla.records import _problems
from ottla.records.column_values import BytesColumn, Columns, EncodedColumns, HeadersColumn, PartitionRows
from ottla.records.errors import CorruptBatch

cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    MIN_RECORD = 7
    MIN_HEADER = 2
    BATCH_OVERHEAD = 61
    LOG_OVERHEAD = 12
    MIN_LENGTH = 49
    MAGIC = 2
    LOG_APPEND_TIME = 0x08
    NOT_PLAIN = 0x27  # compressed, control

include "_walk.pxi"
include "_column_sink.pxi"
include "_column_source.pxi"


cdef inline int32_t int32(const uint8_t *at) noexcept nogil:
    return <int32_t> (<uint32_t> at[0] << 24 | <uint32_t> at[1] << 16 | <uint32_t> at[2] << 8 | at[3])


cdef inline int64_t int64(const uint8_t *at) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> int32(at) << 32 | <uint32_t> int32(at + 4))
