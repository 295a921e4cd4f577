# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The hot loops in C: the same results and errors as `_pure`, where the layout of a record is written out.

Hostile bytes cannot lead out of the buffer: every read compares with the end first, and a length is compared with
what is left before it moves a pointer. Nothing is allocated for a count that the payload is too small for.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject, PyTypeObject, descrsetfunc, newfunc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from crc32c import crc32c

from ottla.records import _problems
from ottla.records._pure import early_problem
from ottla.records.errors import CorruptBatch
from ottla.records.header import BatchHeader, crc_problem, shape_problem
from ottla.records.values import BatchSummary, Record, Scan

cdef extern from "Python.h":
    int PyBUF_READ
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void *obj)

cdef enum:
    MIN_RECORD = 7
    MIN_HEADER = 2
    BATCH_OVERHEAD = 61
    LOG_OVERHEAD = 12
    MIN_LENGTH = 49
    MAGIC = 2
    CRC_START = 21
    LOG_APPEND_TIME = 0x08

# What is wrong with a record: the words are in _problems.
cdef enum Problem:
    FINE
    LENGTH
    NUMBER_CUT
    NUMBER_32
    NUMBER_64
    OFFSET_DELTA
    TIMESTAMP
    KEY_LENGTH
    VALUE_LENGTH
    HEADER_COUNT
    HEADER_KEY_LENGTH
    HEADER_VALUE_LENGTH
    SIZE

cdef dict WORDS = {
    LENGTH: _problems.LENGTH,
    NUMBER_CUT: _problems.NUMBER_CUT,
    NUMBER_32: _problems.NUMBER_32,
    NUMBER_64: _problems.NUMBER_64,
    OFFSET_DELTA: _problems.OFFSET_DELTA,
    TIMESTAMP: _problems.TIMESTAMP,
    KEY_LENGTH: _problems.KEY_LENGTH,
    VALUE_LENGTH: _problems.VALUE_LENGTH,
    HEADER_COUNT: _problems.HEADER_COUNT,
    HEADER_KEY_LENGTH: _problems.HEADER_KEY_LENGTH,
    HEADER_VALUE_LENGTH: _problems.HEADER_VALUE_LENGTH,
    SIZE: _problems.SIZE,
}


# ── Walking over records ─────────────────────────────────────────────────────────────────────────────────────

cdef struct Walk:
    const uint8_t *at
    const uint8_t *end
    Py_ssize_t index
    Py_ssize_t count
    int64_t next_delta
    int64_t last_delta
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint has_append_time

# Where the parts of one record are; a length of -1 is a null.
cdef struct Span:
    int64_t offset
    int64_t timestamp
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    int32_t key_length
    int32_t value_length
    int32_t header_count


cdef int start(Walk *walk, const Py_buffer *view, header, position) except -1:
    cdef int attributes = header.attributes
    walk.at = <const uint8_t *> view.buf
    walk.end = walk.at + view.len
    walk.index = 0
    walk.count = header.record_count
    walk.next_delta = 0
    walk.last_delta = header.last_offset_delta
    walk.base_offset = header.base_offset
    walk.base_timestamp = header.base_timestamp
    walk.append_time = header.max_timestamp
    walk.has_append_time = (attributes & LOG_APPEND_TIME) != 0
    if walk.count > view.len // MIN_RECORD:
        raise CorruptBatch(position, _problems.too_many(view.len, walk.count))
    return 0


cdef inline bint step(Walk *walk, Span *span, position) except -1:
    """The next record, checked in full; False behind the last one."""
    cdef Problem problem
    if walk.index == walk.count:
        if walk.at != walk.end:
            raise CorruptBatch(position, _problems.left_over(walk.end - walk.at, walk.count))
        return False
    problem = read_record(walk, span)
    if problem != FINE:
        raise CorruptBatch(position, _problems.of_record(walk.index, walk.count, WORDS[problem]))
    walk.index += 1
    return True


cdef inline Problem read_record(Walk *walk, Span *span) noexcept nogil:
    cdef const uint8_t *at = walk.at
    cdef const uint8_t *end = walk.end
    cdef int64_t timestamp_delta
    cdef int32_t length, offset_delta
    cdef Problem problem

    problem = read_varint(&at, end, &length)
    if problem != FINE:
        return problem
    if length < MIN_RECORD - 1 or length > end - at:
        return LENGTH
    end = at + length
    at += 1  # attributes

    problem = read_varlong(&at, end, &timestamp_delta)
    if problem != FINE:
        return problem
    problem = read_varint(&at, end, &offset_delta)
    if problem != FINE:
        return problem
    if offset_delta < walk.next_delta or offset_delta > walk.last_delta:
        return OFFSET_DELTA
    if not add(walk.base_timestamp, timestamp_delta, &span.timestamp):
        return TIMESTAMP
    if walk.has_append_time:
        span.timestamp = walk.append_time
    span.offset = walk.base_offset + offset_delta

    problem = read_part(&at, end, &span.key, &span.key_length, KEY_LENGTH)
    if problem != FINE:
        return problem
    problem = read_part(&at, end, &span.value, &span.value_length, VALUE_LENGTH)
    if problem != FINE:
        return problem
    problem = read_varint(&at, end, &span.header_count)
    if problem != FINE:
        return problem
    span.headers = at
    if span.header_count != 0:
        problem = skip_headers(&at, end, span.header_count)
        if problem != FINE:
            return problem
    if at != end:
        return SIZE
    walk.at = end
    walk.next_delta = <int64_t> offset_delta + 1
    return FINE


cdef inline Problem read_part(
    const uint8_t **at, const uint8_t *end, const uint8_t **part, int32_t *length, Problem out_of_bounds
) noexcept nogil:
    cdef Problem problem = read_varint(at, end, length)
    if problem != FINE:
        return problem
    if length[0] < -1 or length[0] > end - at[0]:
        return out_of_bounds
    part[0] = at[0]
    if length[0] > 0:
        at[0] += length[0]
    return FINE


cdef Problem skip_headers(const uint8_t **at, const uint8_t *end, int32_t count) noexcept nogil:
    cdef const uint8_t *part
    cdef int32_t length
    cdef Problem problem
    if count < 0 or count > (end - at[0]) // MIN_HEADER:
        return HEADER_COUNT
    while count > 0:
        problem = read_part(at, end, &part, &length, HEADER_KEY_LENGTH)
        if problem != FINE:
            return problem
        if length < 0:
            return HEADER_KEY_LENGTH
        problem = read_part(at, end, &part, &length, HEADER_VALUE_LENGTH)
        if problem != FINE:
            return problem
        count -= 1
    return FINE


cdef inline bint add(int64_t left, int64_t right, int64_t *total) noexcept nogil:
    """False when the sum does not fit."""
    if (right > 0 and left > INT64_MAX - right) or (right < 0 and left < INT64_MIN - right):
        return False
    total[0] = left + right
    return True


cdef inline Problem read_varint(const uint8_t **at, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef uint64_t raw
    cdef Problem problem
    if at[0] < end and at[0][0] < 0x80:
        raw = at[0][0]
        at[0] += 1
    else:
        problem = read_unsigned(at, end, 32, &raw)
        if problem != FINE:
            return problem
    value[0] = <int32_t> unzigzag(raw)
    return FINE


cdef inline Problem read_varlong(const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef uint64_t raw
    cdef Problem problem = read_unsigned(at, end, 64, &raw)
    if problem == FINE:
        value[0] = unzigzag(raw)
    return problem


cdef inline Problem read_unsigned(const uint8_t **at, const uint8_t *end, int bits, uint64_t *raw) noexcept nogil:
    cdef int shift = 0
    cdef uint8_t byte
    raw[0] = 0
    while at[0] < end:
        byte = at[0][0]
        at[0] += 1
        if shift == 63 and byte > 1:
            return NUMBER_64
        raw[0] |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return NUMBER_32 if bits == 32 and raw[0] >> 32 else FINE
        shift += 7
        if shift >= bits:
            return NUMBER_32 if bits == 32 else NUMBER_64
    return NUMBER_CUT


cdef inline int64_t unzigzag(uint64_t raw) noexcept nogil:
    return <int64_t> ((raw >> 1) ^ (<uint64_t> 0 - (raw & 1)))


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
    """A Record without the price of its __init__, which a frozen dataclass pays for every field."""
    record = PyType_GenericAlloc(RECORD, 0)
    fill(OFFSET_SLOT, record, offset)
    fill(TIMESTAMP_SLOT, record, timestamp)
    fill(KEY_SLOT, record, key)
    fill(VALUE_SLOT, record, value)
    fill(HEADERS_SLOT, record, headers)
    # Numbers, bytes and text are in no cycle: the collector need not look at millions of records.
    PyObject_GC_UnTrack(<void *> record)
    return record


def decode_records(payload, header, position):
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return list_records(&view, header, position)
    finally:
        PyBuffer_Release(&view)


cdef list list_records(const Py_buffer *view, header, position):
    cdef Walk walk
    cdef Span span
    cdef int64_t known
    start(&walk, view, header, position)
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
    """The headers of a record that has been walked already."""
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
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return list_keys(&view, header, position)
    finally:
        PyBuffer_Release(&view)


cdef list list_keys(const Py_buffer *view, header, position):
    cdef Walk walk
    cdef Span span
    start(&walk, view, header, position)
    cdef list entries = []
    while step(&walk, &span, position):
        entries.append((span.offset, span.timestamp, cut(span.key, span.key_length), span.value_length >= 0))
    return entries


def summarize(payload, header, position):
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return sum_up(&view, header, position)
    finally:
        PyBuffer_Release(&view)


cdef object sum_up(const Py_buffer *view, header, position):
    cdef Walk walk
    cdef Span span
    cdef int64_t latest = -1, latest_offset = -1, earliest = -1
    cdef Py_ssize_t keyless = 0
    start(&walk, view, header, position)
    while step(&walk, &span, position):
        if walk.index == 1 or span.timestamp > latest:
            latest, latest_offset = span.timestamp, span.offset
        if walk.index == 1 or span.timestamp < earliest:
            earliest = span.timestamp
        keyless += span.key_length < 0
    return BatchSummary(latest, latest_offset, earliest, keyless, walk.count == walk.last_delta + 1)


def find_timestamp(payload, header, position, timestamp, min_offset):
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return find(&view, header, position, timestamp, min_offset)
    finally:
        PyBuffer_Release(&view)


cdef object find(const Py_buffer *view, header, position, int64_t timestamp, int64_t min_offset):
    cdef Walk walk
    cdef Span span
    start(&walk, view, header, position)
    while step(&walk, &span, position):
        if span.timestamp >= timestamp and span.offset >= min_offset:
            return span.offset, span.timestamp
    return None


# ── Encoding ─────────────────────────────────────────────────────────────────────────────────────────────────

cdef struct Encoder:
    Py_ssize_t used
    Py_ssize_t capacity
    Py_ssize_t index
    int64_t base_offset
    int64_t base_timestamp
    int64_t next_delta
    int64_t latest


def encode_records(records, base_offset, base_timestamp):
    cdef Encoder encoder
    cdef bytearray output = bytearray(1024)
    encoder.used = BATCH_OVERHEAD
    encoder.capacity = 1024
    encoder.index = 0
    encoder.base_offset = base_offset
    encoder.base_timestamp = base_timestamp
    encoder.next_delta = 0
    encoder.latest = -1
    for record in tuple(records):
        encode_record(&encoder, output, record)
    PyByteArray_Resize(output, encoder.used)
    return output, encoder.latest


cdef int encode_record(Encoder *encoder, bytearray output, record) except -1:
    cdef int64_t delta = offset_delta(encoder, record.offset)
    cdef int64_t timestamp_delta = note_timestamp(encoder, record.timestamp)
    cdef list parts = header_parts(record.headers, encoder.index)
    cdef Py_ssize_t header_count = len(parts) // 2
    cdef Py_ssize_t size
    cdef uint8_t *out
    key = record.key
    value = record.value
    size = 1 + varint_size(timestamp_delta) + varint_size(delta) + varint_size(header_count)
    size += part_size(key, encoder.index, "key") + part_size(value, encoder.index, "value")
    for part in parts:
        size += part_size(part, encoder.index, "header value")
    out = room(encoder, output, size)
    out = write_varint(out, size)
    out[0] = 0  # attributes
    out = write_varint(out + 1, timestamp_delta)
    out = write_varint(out, delta)
    out = write_part(out, key)
    out = write_part(out, value)
    out = write_varint(out, header_count)
    for part in parts:
        out = write_part(out, part)
    encoder.used = out - <uint8_t *> PyByteArray_AS_STRING(output)
    encoder.index += 1
    encoder.next_delta = delta + 1
    return 0


cdef int64_t offset_delta(Encoder *encoder, offset) except -1:
    cdef int overflow = 0
    cdef int64_t value = PyLong_AsLongLongAndOverflow(offset, &overflow)
    cdef int64_t base = encoder.base_offset  # not negative: the differences below cannot overflow
    if overflow or value < base + encoder.next_delta or value - base > INT32_MAX:
        reason = _problems.offset_refusal(offset, base)
        raise ValueError(_problems.refusal(encoder.index, reason))
    return value - base


cdef int64_t note_timestamp(Encoder *encoder, timestamp) except? -1:
    """The timestamp's distance from the base timestamp."""
    cdef int overflow = 0
    cdef int64_t value = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
    cdef int64_t base = encoder.base_timestamp
    if overflow or (base < 0 and value > INT64_MAX + base) or (base > 0 and value < INT64_MIN + base):
        raise ValueError(_problems.refusal(encoder.index, _problems.timestamp_refusal(timestamp)))
    if encoder.index == 0 or value > encoder.latest:
        encoder.latest = value
    return value - base


cdef list header_parts(headers, Py_ssize_t index):
    """Key, value, key, value, … as bytes."""
    cdef list parts = []
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(_problems.refusal(index, _problems.header_key_refusal(key)))
        parts.append(key.encode("utf-8", "surrogateescape"))
        parts.append(value)
    return parts


cdef inline Py_ssize_t part_size(part, Py_ssize_t index, str name) except -1:
    if part is None:
        return 1
    if not PyBytes_Check(part):
        raise TypeError(_problems.refusal(index, _problems.type_refusal(name, part)))
    return varint_size(PyBytes_GET_SIZE(part)) + PyBytes_GET_SIZE(part)


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t *room(Encoder *encoder, bytearray output, Py_ssize_t size) except NULL:
    """Where a record of `size` bytes and its length go, in an output that has grown if it was too small."""
    if size > INT32_MAX:
        raise ValueError(_problems.refusal(encoder.index, _problems.SIZE_REFUSAL))
    if encoder.used + size + 5 > encoder.capacity:
        encoder.capacity = 2 * (encoder.used + size + 5)
        PyByteArray_Resize(output, encoder.capacity)
    return <uint8_t *> PyByteArray_AS_STRING(output) + encoder.used


cdef inline uint8_t *write_part(uint8_t *out, part) noexcept:
    cdef Py_ssize_t size
    if part is None:
        return write_varint(out, -1)
    size = PyBytes_GET_SIZE(part)
    out = write_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(part), size)
    return out + size


cdef inline uint8_t *write_varint(uint8_t *out, int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    while raw > 0x7F:
        out[0] = <uint8_t> (raw & 0x7F) | 0x80
        out += 1
        raw >>= 7
    out[0] = <uint8_t> raw
    return out + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ (<uint64_t> 0 - <uint64_t> (value < 0))


# ── Scanning ─────────────────────────────────────────────────────────────────────────────────────────────────

def scan(buffer, position, end, check_crc):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= end <= view.len:
            raise ValueError(_problems.range_refusal(position, end, view.len))
        return scan_range(&view, buffer, position, end, check_crc)
    finally:
        PyBuffer_Release(&view)


cdef object scan_range(const Py_buffer *view, buffer, Py_ssize_t position, Py_ssize_t end, bint check_crc):
    cdef const uint8_t *data = <const uint8_t *> view.buf
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


cdef inline bint possible(const uint8_t *at) noexcept nogil:
    """Whether shape_problem, which finds the words, has nothing to say against the header."""
    cdef int64_t base_offset = int64(at), last_delta = int32(at + 23), count = int32(at + 57)
    return (
        int32(at + 8) >= MIN_LENGTH
        and at[16] == MAGIC
        and last_delta >= 0
        and 0 <= base_offset <= INT64_MAX - last_delta - 1
        and 0 <= count <= last_delta + 1
    )


cdef object crc_of(const uint8_t *at, Py_ssize_t size):
    return crc32c(PyMemoryView_FromMemory(<char *> (at + CRC_START), size - CRC_START, PyBUF_READ))


cdef inline int32_t int32(const uint8_t *at) noexcept nogil:
    return <int32_t> (<uint32_t> at[0] << 24 | <uint32_t> at[1] << 16 | <uint32_t> at[2] << 8 | at[3])


cdef inline int64_t int64(const uint8_t *at) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> int32(at) << 32 | <uint32_t> int32(at + 4))
