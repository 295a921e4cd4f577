# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The hot loops in C: the same results and errors as `_pure`, which describes the layout of a record.

No read goes past the buffer: each is compared with the end first, and each length with the rest of the buffer. Nothing
is allocated for a count that the payload is too small for.
"""

from collections.abc import Sequence

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.bytearray cimport PyByteArray_Resize
from cpython.bytes cimport PyBytes_Check, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject, PyTypeObject, descrsetfunc, newfunc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MIN, int8_t
from libc.string cimport memcmp, memset

from ottla.records._crc import crc32c

from ottla.records import _problems
from ottla.records._pure import early_problem
from ottla.records.errors import CorruptBatch
from ottla.records.header import BatchHeader, crc_problem, shape_problem
from ottla.records.values import BatchSummary, Record, Scan, topic_id_of

cdef extern from "Python.h":
    int PyBUF_READ
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void *obj)

cdef extern from *:
    """
    /* Since 3.14 a tuple caches its hash; -1 means not computed. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define FORGET_HASH(made) (((PyTupleObject *) (made))->ob_hash = -1)
    #else
    #define FORGET_HASH(made) ((void) 0)
    #endif
    """
    void FORGET_HASH(object made)

include "_bytes.pxi"
include "_walk.pxi"
include "_encode.pxi"
include "_commits.pxi"
include "_packed.pxi"
include "_consuming.pxi"


# ── Decoding ─────────────────────────────────────────────────────────────────────────────────────────────────

cdef PyTypeObject *RECORD = <PyTypeObject *> Record
cdef object OFFSET_SLOT = Record.offset
cdef object TIMESTAMP_SLOT = Record.timestamp
cdef object KEY_SLOT = Record.key
cdef object VALUE_SLOT = Record.value
cdef object HEADERS_SLOT = Record.headers
cdef object SLOT = type(OFFSET_SLOT)
cdef descrsetfunc fill = (<PyTypeObject *> SLOT).tp_descr_set


cdef inline object new_record(object offset, object timestamp, object key, object value, tuple headers):
    """A Record without a call of its slow __init__, which sets each field of a frozen dataclass."""
    record = PyType_GenericAlloc(RECORD, 0)
    fill(OFFSET_SLOT, record, offset)
    fill(TIMESTAMP_SLOT, record, timestamp)
    fill(KEY_SLOT, record, key)
    fill(VALUE_SLOT, record, value)
    fill(HEADERS_SLOT, record, headers)
    # Numbers, bytes and text form no cycles: the garbage collector need not track millions of records.
    PyObject_GC_UnTrack(<void *> record)
    return record


def decode_records(payload, header, position):
    cdef Held held = hold(payload)
    cdef Walk walk
    cdef Span span
    cdef int64_t known
    start(&walk, &held.view, header, position)
    cdef list records = PyList_New(walk.count)
    known = walk.append_time
    timestamp = known
    while step(&walk, &span, position):
        if span.timestamp != known:
            known = span.timestamp
            timestamp = known
        record = new_record(
            span.offset,
            timestamp,
            cut(span.key, span.key_length),
            cut(span.value, span.value_length),
            headers_of(&span, walk.at) if span.header_count else (),
        )
        Py_INCREF(record)
        PyList_SET_ITEM(records, walk.index - 1, record)
    return records


cdef inline object cut(const uint8_t *start, int32_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char *> start, length)


cdef tuple headers_of(const Span *span, const uint8_t *end):
    """The headers of a record that was checked."""
    cdef const uint8_t *at = span.headers
    cdef const uint8_t *part = at
    cdef int32_t length = 0, index
    cdef tuple headers = PyTuple_New(span.header_count)
    for index in range(span.header_count):
        read_part(&at, end, &part, &length, HEADER_KEY_LENGTH)
        key = PyUnicode_DecodeUTF8(<char *> part, max(length, 0), "surrogateescape")
        read_part(&at, end, &part, &length, HEADER_VALUE_LENGTH)
        pair = (key, cut(part, length))
        Py_INCREF(pair)
        PyTuple_SET_ITEM(headers, index, pair)
    return headers


def decode_keys(payload, header, position):
    cdef Held held = hold(payload)
    cdef Walk walk
    cdef Span span
    start(&walk, &held.view, header, position)
    cdef list entries = []
    while step(&walk, &span, position):
        entries.append((span.offset, span.timestamp, cut(span.key, span.key_length), span.value_length >= 0))
    return entries


def summarize(payload, header, position):
    cdef Held held = hold(payload)
    cdef Walk walk
    cdef Span span
    cdef int64_t latest = -1, latest_offset = -1, earliest = -1
    cdef Py_ssize_t keyless = 0
    start(&walk, &held.view, header, position)
    while step(&walk, &span, position):
        if walk.index == 1 or span.timestamp > latest:
            latest, latest_offset = span.timestamp, span.offset
        if walk.index == 1 or span.timestamp < earliest:
            earliest = span.timestamp
        keyless += span.key_length < 0
    return BatchSummary(latest, latest_offset, earliest, keyless, walk.count == walk.last_delta + 1)


def find_timestamp(payload, header, position, int64_t timestamp, int64_t min_offset):
    cdef Held held = hold(payload)
    cdef Walk walk
    cdef Span span
    start(&walk, &held.view, header, position)
    while step(&walk, &span, position):
        if span.timestamp >= timestamp and span.offset >= min_offset:
            return span.offset, span.timestamp
    return None


# ── Scanning ─────────────────────────────────────────────────────────────────────────────────────────────────

def scan(buffer, position, end, check_crc):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= end <= view.len:
            raise ValueError(_problems.range_refusal(position, end, view.len))
        return scan_range(<const uint8_t *> view.buf, buffer, position, end, check_crc)
    finally:
        PyBuffer_Release(&view)


cdef object scan_range(const uint8_t *data, buffer, Py_ssize_t position, Py_ssize_t end, bint check_crc):
    cdef Py_ssize_t size
    cdef list batches = []
    while position < end:
        if end - position < BATCH_OVERHEAD:
            problem = early_problem(buffer, position, end - position)
            return Scan(batches, position, problem, problem is None)
        header = read_header(data + position)
        if not possible(data + position):
            return Scan(batches, position, shape_problem(header), False)
        size = LOG_OVERHEAD + <Py_ssize_t> int32(data + position + 8)
        if size > end - position:
            return Scan(batches, position, None, True)
        if check_crc:
            actual = crc_of(data + position, size)
            if actual != header.crc:
                return Scan(batches, position, crc_problem(header.crc, actual), False)
        batches.append((position, header))
        position += size
    return Scan(batches, position, None, False)


cdef newfunc new_tuple = (<PyTypeObject *> tuple).tp_new


cdef object read_header(const uint8_t *at):
    cdef tuple arguments = ((
        int64(at),
        int32(at + 8),
        int32(at + 12),
        <int8_t> at[16],
        <uint32_t> int32(at + 17),
        <int16_t> (at[21] << 8 | at[22]),
        int32(at + 23),
        int64(at + 27),
        int64(at + 35),
        int64(at + 43),
        <int16_t> (at[51] << 8 | at[52]),
        int32(at + 53),
        int32(at + 57),
    ),)
    header = new_tuple(BatchHeader, <PyObject *> arguments, NULL)
    PyObject_GC_UnTrack(<void *> header)
    return header


cdef object crc_of(const uint8_t *at, Py_ssize_t size):
    return crc32c(PyMemoryView_FromMemory(<char *> (at + CRC_START), size - CRC_START, PyBUF_READ))
