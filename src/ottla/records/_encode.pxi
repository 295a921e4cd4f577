"""Encode records, included by `_speedups`: compute the size of a record, make room, write it."""

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


def encode_pairs(pairs, timestamp):
    cdef Encoder encoder
    cdef bytearray output = bytearray(1024)
    encoder.used = BATCH_OVERHEAD
    encoder.capacity = 1024
    encoder.index = 0
    encoder.base_timestamp = 0
    note_timestamp(&encoder, timestamp)
    for key, value in pairs:
        encode_pair(&encoder, output, key, value)
    PyByteArray_Resize(output, encoder.used)
    return output


cdef int encode_pair(Encoder *encoder, bytearray output, key, value) except -1:
    cdef Py_ssize_t size = 3 + varint_size(encoder.index)
    cdef uint8_t *out
    size += checked_size(key, encoder.index, "key") + checked_size(value, encoder.index, "value")
    out = room(encoder, output, size)
    out = write_varint(out, size)
    out[0] = out[1] = 0  # attributes, timestamp delta
    out = write_varint(out + 2, encoder.index)
    out = write_bytes(out, key)
    out = write_bytes(out, value)
    out[0] = 0  # headers
    encoder.used = out + 1 - <uint8_t *> PyByteArray_AS_STRING(output)
    encoder.index += 1
    return 0


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
    size += checked_size(key, encoder.index, "key") + checked_size(value, encoder.index, "value")
    for part in parts:
        size += checked_size(part, encoder.index, "header value")
    out = room(encoder, output, size)
    out = write_varint(out, size)
    out[0] = 0  # attributes
    out = write_varint(out + 1, timestamp_delta)
    out = write_varint(out, delta)
    out = write_bytes(out, key)
    out = write_bytes(out, value)
    out = write_varint(out, header_count)
    for part in parts:
        out = write_bytes(out, part)
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
    """The difference from the base timestamp."""
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


cdef inline Py_ssize_t checked_size(part, Py_ssize_t index, str name) except -1:
    if part is None:
        return 1
    if not PyBytes_Check(part):
        raise TypeError(_problems.refusal(index, _problems.type_refusal(name, part)))
    return bytes_size(part)


cdef inline uint8_t *room(Encoder *encoder, bytearray output, Py_ssize_t size) except NULL:
    """The place for a record of `size` bytes and its length; the output grows if necessary."""
    if size > INT32_MAX:
        raise ValueError(_problems.refusal(encoder.index, _problems.SIZE_REFUSAL))
    if encoder.used + size + 5 > encoder.capacity:
        encoder.capacity = 2 * (encoder.used + size + 5)
        PyByteArray_Resize(output, encoder.capacity)
    return <uint8_t *> PyByteArray_AS_STRING(output) + encoder.used
