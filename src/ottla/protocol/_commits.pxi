"""OffsetCommit read and answered in one go, included by `_walker`; `_commits_pure` says what is done."""

cdef enum:
    FIRST_QUICK = 8
    FIRST_WITH_IDS = 10
    LONGEST = 1 << 16
    NO_RETENTION = -1

cdef Plan NO_FIELDS = Plan("tags", [], 0, True, True)


def read_commit(buffer, Py_ssize_t position, int version, int32_t correlation_id, dict topics):
    cdef Reader reader
    cdef Writer writer
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    begin(&writer, None, 0)
    try:
        if version < FIRST_QUICK or view.len > LONGEST or not 0 <= position <= view.len:
            return None
        reader.data = <const uint8_t *> view.buf
        reader.position, reader.end = position, view.len
        reader.counts = False
        return read_and_answer(&reader, &writer, version, correlation_id, topics)
    except (IndexError, ValueError):
        return None
    finally:
        release(&writer)
        PyBuffer_Release(&view)


cdef object read_and_answer(Reader *reader, Writer *writer, int version, int32_t correlation_id, dict topics):
    cdef list offsets = []
    cdef int64_t count
    group_id = read_bytes(STRING, reader, True, False)
    generation = <int32_t> get_integer(take(reader, 4), 4)
    member_id = read_bytes(STRING, reader, True, False)
    instance_id = read_bytes(STRING, reader, True, True)
    # Size, correlation id, no tags, throttle time.
    put_integer(room(writer, 8), <uint64_t> correlation_id & 0xFFFFFFFF, 8)
    put_integer(room(writer, 5), 0, 5)
    count = read_count(reader, writer)
    while count:
        count -= 1
        if not read_topic(reader, writer, version, topics, offsets):
            return None
    read_no_fields(reader, writer)
    put_integer(writer.data, writer.used - 4, 4)
    answer = new_bytearray(Buffer, <PyObject *> NOTHING, NULL)
    put(answer, SPLICES_SLOT, NOTHING)
    append(answer, 0, writer)
    return (group_id, member_id, generation, instance_id, NO_RETENTION, version, tuple(offsets)), answer


cdef bint read_topic(Reader *reader, Writer *writer, int version, dict topics, list offsets) except -1:
    cdef int64_t count, partitions
    cdef PyObject *topic
    if version < FIRST_WITH_IDS:
        asked = read_bytes(STRING, reader, True, False)
        write_text(writer, asked, True)
    else:
        asked = read_uuid(reader)
        write_uuid(writer, asked)
    topic = PyDict_GetItemWithError(topics, asked)
    if topic == NULL:
        return False
    name, topic_id, partitions = (<object> topic).name, (<object> topic).topic_id, (<object> topic).partitions
    count = read_count(reader, writer)
    while count:
        count -= 1
        if not read_partition(reader, writer, name, topic_id, partitions, offsets):
            return False
    read_no_fields(reader, writer)
    return True


cdef bint read_partition(Reader *reader, Writer *writer, name, topic_id, int64_t partitions, list offsets) except -1:
    cdef const uint8_t *data = take(reader, 16)
    cdef int32_t index = <int32_t> get_integer(data, 4)
    if not 0 <= index < partitions:
        return False
    offset, leader_epoch = <int64_t> get_integer(data + 4, 8), <int32_t> get_integer(data + 12, 4)
    offsets.append((name, index, offset, leader_epoch, read_bytes(STRING, reader, True, True), topic_id))
    put_integer(room(writer, 6), <uint64_t> index << 16, 6)  # and no error
    read_no_fields(reader, writer)
    return True


cdef int64_t read_count(Reader *reader, Writer *writer) except -1:
    cdef int64_t count = read_length(reader, True, False)
    if not 0 <= count <= reader.end - reader.position:
        raise ValueError(f"an array of {count} does not fit")
    write_length(writer, count, True, False)
    return count


cdef int read_no_fields(Reader *reader, Writer *writer) except -1:
    """The tagged fields, of which nobody knows any yet."""
    read_tags(NO_FIELDS, reader, None)
    return write_integer(writer, 0, 1)
