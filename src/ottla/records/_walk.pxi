"""Read the records of a payload one by one, fully checked. Included by `_speedups` and `_columns`."""

# What is wrong with a record; _problems has the messages.
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

# The parts of one record; a length of -1 is a null.
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
    """Read the next record, fully checked; False after the last one."""
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
    """False if the sum overflows."""
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
