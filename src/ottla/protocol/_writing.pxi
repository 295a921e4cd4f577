"""The encoder, included by `_walker`. It writes to its own memory, on the stack while a message is small."""

cdef enum:
    SMALL = 512

cdef struct Writer:
    uint8_t *data
    Py_ssize_t used
    Py_ssize_t capacity
    Py_ssize_t before  # bytes already in the buffer
    PyObject *splices
    uint8_t[SMALL] small


cdef void begin(Writer *writer, splices, Py_ssize_t before) noexcept:
    writer.data = writer.small
    writer.used = 0
    writer.capacity = SMALL
    writer.before = before
    writer.splices = <PyObject *> splices


cdef void release(Writer *writer) noexcept:
    if writer.data != writer.small:
        PyMem_Free(writer.data)


cdef int append(out, Py_ssize_t before, Writer *writer) except -1:
    """Append the written bytes to a bytearray."""
    PyByteArray_Resize(out, before + writer.used)
    memcpy(PyByteArray_AS_STRING(out) + before, writer.data, writer.used)
    return 0


cdef inline uint8_t *room(Writer *writer, Py_ssize_t size) except NULL:
    """The place for the next `size` bytes."""
    if size > writer.capacity - writer.used:
        grow(writer, size)
    writer.used += size
    return writer.data + writer.used - size


cdef int grow(Writer *writer, Py_ssize_t size) except -1:
    cdef Py_ssize_t capacity = 2 * (writer.used + size)
    cdef bint is_small = writer.data == writer.small
    cdef uint8_t *larger = <uint8_t *> PyMem_Realloc(NULL if is_small else writer.data, capacity)
    if larger == NULL:
        raise MemoryError
    if is_small:
        memcpy(larger, writer.small, writer.used)
    writer.data = larger
    writer.capacity = capacity
    return 0


cdef int write_struct(Plan plan, Writer *writer, message) except -1:
    cdef Py_ssize_t index
    cdef Step *step
    if not isinstance(message, dict):
        raise TypeError(f"{plan._name} is made of a dict, not of {type(message).__name__}")
    if plan._known is not None and not message.keys() <= plan._known:
        raise KeyError(f"{plan._name} has no field {message.keys() - plan._known}")
    for index in range(plan._plain_count):
        step = &plan._plain[index]
        write_field(step, writer, value_of(step, message, step.default), plan._flexible)
    if plan._flexible:
        write_tags(plan, writer, message)
    return 0


cdef inline object value_of(Step *step, message, PyObject *default):
    cdef PyObject *value = PyDict_GetItemWithError(message, <object> step.name)
    if value == NULL:
        if default == NULL:
            raise KeyError(<object> step.name)
        value = default
    return <object> value


cdef int write_tags(Plan plan, Writer *writer, message) except -1:
    cdef Py_ssize_t index
    cdef Py_ssize_t count_at = writer.used
    cdef uint8_t count = 0
    cdef Step *step
    room(writer, 1)
    for index in range(plan._tagged_count):
        step = &plan._tagged[index]
        value = value_of(step, message, step.empty)
        if is_told(step, value):
            write_tag(step, writer, value)
            count += 1
    writer.data[count_at] = count
    return 0


cdef bint is_told(Step *step, value) except -1:
    if step.array:
        return bool(value)
    # A nullable struct is written even if it is null: Kafka reads a missing one as an empty one.
    if step.kind == STRUCT and step.nullable:
        return True
    return PyObject_RichCompareBool(value, <object> step.empty, Py_NE)


cdef int write_tag(Step *step, Writer *writer, value) except -1:
    """Write tag, size and value; the value first, since its size is unknown before."""
    cdef Py_ssize_t start = writer.used
    cdef Py_ssize_t size, head
    write_field(step, writer, value, True)
    size = writer.used - start
    head = uvarint_size(step.tag) + uvarint_size(size)
    room(writer, head)
    memmove(writer.data + start + head, writer.data + start, size)
    put_uvarint(put_uvarint(writer.data + start, step.tag), size)
    return 0


cdef int write_field(Step *step, Writer *writer, value, bint flexible) except -1:
    if step.array:
        return write_array(step, writer, value, flexible)
    if step.kind == STRUCT:
        if step.nullable:
            if value is None:
                return write_integer(writer, 0 if step.tagged else -1, 1)
            write_integer(writer, 1, 1)
        elif value is None:
            value = EMPTY
    return write_value(step, writer, value, flexible)


cdef int write_array(Step *step, Writer *writer, value, bint flexible) except -1:
    cdef Py_ssize_t index, count
    if value is None:
        return write_length(writer, -1, flexible, False)
    items = PySequence_Fast(value, "an array is made of a sequence")
    count = PySequence_Fast_GET_SIZE(items)
    write_length(writer, count, flexible, False)
    for index in range(count):
        # Properties of an item may run any code and change the list.
        if index >= PySequence_Fast_GET_SIZE(items):
            raise IndexError("an array became shorter while it was written")
        item = <object> PySequence_Fast_GET_ITEM(items, index)
        write_value(step, writer, item, flexible)
    return 0


cdef int write_value(Step *step, Writer *writer, value, bint flexible) except -1:
    cdef double number
    cdef uint64_t bits
    if step.kind == SIGNED or step.kind == UNSIGNED:
        return write_integer(writer, whole(value, step.lowest, step.highest), step.size)
    if step.kind == STRING:
        return write_text(writer, value, flexible)
    if step.kind == STRUCT:
        return write_struct(<Plan> step.nested, writer, value)
    if step.kind == BOOL:
        return write_integer(writer, bool(value), 1)
    if step.kind == IDENTIFIER:
        return write_uuid(writer, value)
    if step.kind == FLOAT:
        number = real(value)
        memcpy(&bits, &number, 8)
        return write_integer(writer, bits, 8)
    if step.kind == RECORDS:
        return write_records(writer, value, flexible)
    return write_blob(writer, value, flexible, False)


cdef int64_t whole(value, int64_t lowest, int64_t highest) except? -1:
    """An integer; out of range it raises `struct.error`, as in the pure version."""
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        try:
            value = PyNumber_Index(value)
        except TypeError as error:
            raise StructError(f"{value!r} is not an integer") from error
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or not lowest <= number <= highest:
        raise StructError(f"{value} is not between {lowest} and {highest}")
    return number


cdef double real(value) except? -1:
    try:
        return value
    except TypeError as error:
        raise StructError(f"{value!r} is not a number") from error


cdef int write_text(Writer *writer, value, bint flexible) except -1:
    cdef const char *data
    cdef Py_ssize_t size
    if value is None:
        return write_length(writer, -1, flexible, True)
    if not PyUnicode_Check(value):
        return write_blob(writer, value.encode(), flexible, True)
    data = PyUnicode_AsUTF8AndSize(value, &size)
    write_length(writer, size, flexible, True)
    return write_bytes(writer, <const uint8_t *> data, size)


cdef int write_records(Writer *writer, value, bint flexible) except -1:
    """Write bytes; an object with a `length` becomes a splice."""
    is_bytes = value is None or PyBytes_Check(value) or PyByteArray_Check(value) or PyMemoryView_Check(value)
    if is_bytes or not hasattr(value, "length"):
        return write_blob(writer, value, flexible, False)
    write_length(writer, value.length, flexible, False)
    (<object> writer.splices).append((writer.before + writer.used, value))
    return 0


cdef int write_blob(Writer *writer, value, bint flexible, bint short) except -1:
    cdef Py_buffer view
    if value is None:
        return write_length(writer, -1, flexible, short)
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        write_length(writer, view.len, flexible, short)
        return write_bytes(writer, <const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef int write_bytes(Writer *writer, const uint8_t *data, Py_ssize_t size) except -1:
    memcpy(room(writer, size), data, size)
    return 0


cdef int write_uuid(Writer *writer, value) except -1:
    return put_uuid(room(writer, 16), value)


cdef int put_uuid(uint8_t *out, value) except -1:
    cdef uint64_t high = 0, low = 0
    if value is not None:
        number = value.int
        low = PyLong_AsUnsignedLongLongMask(number)
        high = PyLong_AsUnsignedLongLongMask(number >> 64)
    put_integer(out, high, 8)
    put_integer(out + 8, low, 8)
    return 0


cdef int write_length(Writer *writer, int64_t length, bint flexible, bint short) except -1:
    """Write a length: -1 for null."""
    cdef Py_ssize_t size = 2 if short else 4
    if flexible:
        put_uvarint(room(writer, uvarint_size(length + 1)), length + 1)
        return 0
    if length > INT64_MAX >> (64 - 8 * size):
        raise StructError(f"a length of {length} does not fit into {size} bytes")
    return write_integer(writer, length, size)


cdef inline int write_integer(Writer *writer, int64_t number, Py_ssize_t size) except -1:
    put_integer(room(writer, size), number, size)
    return 0


cdef inline void put_integer(uint8_t *out, uint64_t bits, Py_ssize_t size) noexcept:
    cdef Py_ssize_t index
    for index in range(size):
        out[index] = <uint8_t> (bits >> (8 * (size - 1 - index)))


cdef inline Py_ssize_t uvarint_size(uint64_t value) noexcept:
    cdef Py_ssize_t size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_uvarint(uint8_t *out, uint64_t value) noexcept:
    while value > 127:
        out[0] = <uint8_t> (value & 0x7F | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t> value
    return out + 1
