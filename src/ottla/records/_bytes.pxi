"""The layout of a batch, buffers, big-endian numbers, varints and Kafka's key hash, included by every records kernel."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

# As in header.py.
cdef enum:
    MIN_RECORD = 7
    MIN_HEADER = 2
    BATCH_OVERHEAD = 61
    LOG_OVERHEAD = 12
    MIN_LENGTH = 49
    MAGIC = 2
    CRC_START = 21
    COMPRESSION_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    CONTROL = 0x20


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class Held:
    """A buffer that is held while this object exists."""

    cdef Py_buffer view

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef inline Held hold(given):
    cdef Held held = Held.__new__(Held)
    PyObject_GetBuffer(given, &held.view, PyBUF_SIMPLE)
    return held


cdef inline bint possible(const uint8_t *at) noexcept nogil:
    """Whether `shape_problem` in header.py would accept this header."""
    cdef int64_t base_offset = int64(at), last_delta = int32(at + 23), count = int32(at + 57)
    return (
        int32(at + 8) >= MIN_LENGTH
        and at[16] == MAGIC
        and last_delta >= 0
        and 0 <= base_offset <= INT64_MAX - last_delta - 1
        and 0 <= count <= last_delta + 1
    )


cdef inline int16_t int16(const uint8_t *at) noexcept nogil:
    return <int16_t> (at[0] << 8 | at[1])


cdef inline int32_t int32(const uint8_t *at) noexcept nogil:
    return <int32_t> (<uint32_t> at[0] << 24 | <uint32_t> at[1] << 16 | <uint32_t> at[2] << 8 | at[3])


cdef inline int64_t int64(const uint8_t *at) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> int32(at) << 32 | <uint32_t> int32(at + 4))


cdef inline uint8_t *write_int(uint8_t *out, int64_t value, int size) noexcept nogil:
    cdef int at
    for at in range(size):
        out[at] = <uint8_t> (<uint64_t> value >> 8 * (size - 1 - at))
    return out + size


cdef inline int varint_size(int64_t value) noexcept nogil:
    return unsigned_size(zigzag(value))


cdef inline int unsigned_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *write_varint(uint8_t *out, int64_t value) noexcept nogil:
    return write_unsigned(out, zigzag(value))


cdef inline uint8_t *write_unsigned(uint8_t *out, uint64_t value) noexcept nogil:
    while value > 0x7F:
        out[0] = <uint8_t> (value & 0x7F) | 0x80
        out += 1
        value >>= 7
    out[0] = <uint8_t> value
    return out + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ (<uint64_t> 0 - <uint64_t> (value < 0))


# A part of a record (key, value or header): its length as a varint, -1 for null, and its bytes.

cdef inline int64_t part_size(int64_t length) noexcept nogil:
    return varint_size(length) + (length if length > 0 else 0)


cdef inline uint8_t *write_part(uint8_t *out, const uint8_t *part, int64_t length) noexcept nogil:
    out = write_varint(out, length)
    if length > 0:
        memcpy(out, part, length)
        out += length
    return out


cdef inline int64_t bytes_size(part) noexcept:
    if part is None:
        return 1
    return varint_size(PyBytes_GET_SIZE(part)) + PyBytes_GET_SIZE(part)


cdef inline uint8_t *write_bytes(uint8_t *out, part) noexcept:
    cdef Py_ssize_t size
    if part is None:
        return write_varint(out, -1)
    size = PyBytes_GET_SIZE(part)
    out = write_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(part), size)
    return out + size


cdef inline uint32_t murmur2_of(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Kafka's 32-bit hash of a key."""
    cdef uint32_t value = <uint32_t> 0x9747B28C ^ <uint32_t> size
    cdef uint32_t word
    cdef uint32_t multiplier = 0x5BD1E995
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        word = data[at] | <uint32_t> data[at + 1] << 8 | <uint32_t> data[at + 2] << 16 | <uint32_t> data[at + 3] << 24
        word *= multiplier
        word = (word ^ word >> 24) * multiplier
        value = value * multiplier ^ word
        at += 4
    if size - at == 3:
        value ^= <uint32_t> data[at + 2] << 16
    if size - at >= 2:
        value ^= <uint32_t> data[at + 1] << 8
    if size - at >= 1:
        value = (value ^ data[at]) * multiplier
    value = (value ^ value >> 13) * multiplier
    return value ^ value >> 15
