"""The decoder, included by `_walker`."""

cdef struct Reader:
    const uint8_t *data
    Py_ssize_t position
    Py_ssize_t end
    bint counts  # whether items are limited; how many are left
    int64_t items
    PyObject *buffer


cdef object read_struct(Plan plan, Reader *reader):
    cdef Py_ssize_t index
    cdef Step *step
    message = PyType_GenericAlloc(<PyTypeObject *> plan._class, 0)
    for index in range(plan._plain_count):
        step = &plan._plain[index]
        put(message, step.slot, read_field(step, reader, plan._flexible))
    if plan._flexible:
        read_tags(plan, reader, message)
    for index in range(plan._tagged_count):
        step = &plan._tagged[index]
        if is_empty(message, step.slot):
            put(message, step.slot, <object> step.empty)
    for index in range(plan._absent_count):
        step = &plan._absent[index]
        put(message, step.slot, <object> step.empty)
    return message


cdef int read_tags(Plan plan, Reader *reader, message) except -1:
    cdef int64_t count = read_uvarint(reader)
    cdef int64_t tag, size
    cdef Py_ssize_t index, stop
    if count == 0:
        return 0
    if count > MAX_TAGS:
        raise ValueError(f"{count} tagged fields")
    count_items(reader, count)
    while count:
        count -= 1
        tag = read_uvarint(reader)
        size = read_uvarint(reader)
        if size > reader.end - reader.position:
            raise ValueError("a tagged field runs past the end")
        stop = reader.position + size
        for index in range(plan._tagged_count):
            if plan._tagged[index].tag == tag:
                put(message, plan._tagged[index].slot, read_field(&plan._tagged[index], reader, True))
        reader.position = stop
    return 0


cdef object read_field(Step *step, Reader *reader, bint flexible):
    cdef uint8_t mark
    if step.array:
        return read_array(step, reader, flexible)
    if step.kind == STRUCT and step.nullable:
        mark = take(reader, 1)[0]
        # Null is -1, but 0 in a tagged field.
        if mark == 0 if step.tagged else mark >= 0x80:
            return None
    return read_value(step, reader, flexible, step.nullable)


cdef object read_array(Step *step, Reader *reader, bint flexible):
    cdef int64_t count = read_length(reader, flexible, False)
    cdef int64_t index
    cdef list items
    if count < 0:
        if not step.nullable:
            raise ValueError("null where an array is needed")
        if count != -1:
            raise ValueError(f"an array of {count}")
        return None
    # Every item takes at least one byte, so a longer array is invalid. Check before allocating memory.
    if count > reader.end - reader.position:
        raise ValueError(f"an array of {count} does not fit")
    count_items(reader, count)
    if step.size and step.kind != IDENTIFIER:
        return read_fixed(step, reader, count)
    items = []
    for index in range(count):
        items.append(read_value(step, reader, flexible, False))
    return items


cdef tuple read_fixed(Step *step, Reader *reader, int64_t count):
    cdef tuple items
    cdef int64_t index
    if count * step.size > reader.end - reader.position:
        raise ValueError(f"an array of {count} does not fit")
    items = PyTuple_New(count)
    for index in range(count):
        item = read_value(step, reader, False, False)
        Py_INCREF(item)
        PyTuple_SET_ITEM(items, index, item)
    return items


cdef object read_value(Step *step, Reader *reader, bint flexible, bint nullable):
    cdef uint64_t bits
    cdef double number
    if step.size:
        if step.kind == IDENTIFIER:
            return read_uuid(reader)
        bits = get_integer(take(reader, step.size), step.size)
        if step.kind == SIGNED:
            # Shift up and down again to extend the sign.
            return <int64_t> (bits << (64 - 8 * step.size)) >> (64 - 8 * step.size)
        if step.kind == UNSIGNED:
            return bits
        if step.kind == BOOL:
            return bits != 0
        memcpy(&number, &bits, 8)
        return number
    if step.kind == STRUCT:
        return read_struct(<Plan> step.nested, reader)
    return read_bytes(step.kind, reader, flexible, nullable)


cdef object read_bytes(Kind kind, Reader *reader, bint flexible, bint nullable):
    cdef int64_t length = read_length(reader, flexible, kind == STRING)
    cdef Py_ssize_t start = reader.position
    if length < 0:
        if not nullable:
            raise ValueError("null where a value is needed")
        if length != -1:
            raise ValueError(f"a length of {length}")
        return None
    if length > reader.end - start:
        raise ValueError(f"{length} bytes do not fit")
    reader.position = start + length
    if kind == STRING:
        return PyUnicode_DecodeUTF8(<const char *> reader.data + start, length, NULL)
    if kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *> reader.data + start, length)
    return PySequence_GetSlice(<object> reader.buffer, start, start + length)


cdef object read_uuid(Reader *reader):
    cdef const uint8_t *data = take(reader, 16)
    cdef uint64_t high = get_integer(data, 8)
    cdef uint64_t low = get_integer(data + 8, 8)
    if high == 0 and low == 0:
        return None
    # Like UUID(bytes=...), in a tenth of the time.
    value = PyType_GenericAlloc(<PyTypeObject *> UUID, 0)
    put(value, INT_SLOT, (<object> high << 64) | <object> low)
    put(value, SAFE_SLOT, UNKNOWN)
    return value


cdef inline const uint8_t *take(Reader *reader, Py_ssize_t size) except NULL:
    cdef const uint8_t *here = reader.data + reader.position
    if size > reader.end - reader.position:
        raise IndexError("the message ends too early")
    reader.position += size
    return here


cdef inline uint64_t get_integer(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef uint64_t bits = 0
    cdef Py_ssize_t index
    for index in range(size):
        bits = bits << 8 | data[index]
    return bits


cdef int64_t read_length(Reader *reader, bint flexible, bint short) except? -2:
    """Read a length: -1 for null."""
    if flexible:
        return read_uvarint(reader) - 1
    if short:
        return <int16_t> get_integer(take(reader, 2), 2)
    return <int32_t> get_integer(take(reader, 4), 4)


cdef int64_t read_uvarint(Reader *reader) except -1:
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        byte = take(reader, 1)[0]
        value |= <int64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 28:
            raise ValueError("a varint is longer than five bytes")


cdef inline int count_items(Reader *reader, int64_t count) except -1:
    if reader.counts:
        reader.items -= count
        if reader.items < 0:
            raise ValueError("too many items")
    return 0
