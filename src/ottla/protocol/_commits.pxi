"""Read an OffsetCommit request and make its response in one step, included by `_walker`; see `_commits_pure`."""

cdef enum:
    FIRST_QUICK = 8
    FIRST_WITH_IDS = 10
    LONGEST = 1 << 16
    LONGEST_GROUP = 512  # longer ones take the slow path
    NO_RETENTION = -1


cdef struct Text:
    const char *data
    Py_ssize_t size


cdef struct Commit:
    Reader request
    Writer answer
    Writer packed
    int64_t longest_metadata
    Text group
    Text topic
    int64_t partitions  # of the topic
    uint8_t[16] topic_id


def read_commit(
    buffer, Py_ssize_t position, int version, int32_t correlation_id, dict topics, int64_t longest_metadata
):
    cdef Commit commit
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    begin(&commit.answer, None, 0)
    begin(&commit.packed, None, 0)
    try:
        if version < FIRST_QUICK or view.len > LONGEST or not 0 <= position <= view.len:
            return None
        commit.request.data = <const uint8_t *> view.buf
        commit.request.position, commit.request.end = position, view.len
        commit.request.counts = False
        commit.longest_metadata = longest_metadata
        return read_and_answer(&commit, version, correlation_id, topics)
    except (IndexError, ValueError):
        return None
    finally:
        release(&commit.answer)
        release(&commit.packed)
        PyBuffer_Release(&view)


cdef object read_and_answer(Commit *commit, int version, int32_t correlation_id, dict topics):
    cdef Reader *reader = &commit.request
    cdef Writer *writer = &commit.answer
    cdef int64_t count
    group_id = read_bytes(STRING, reader, True, False)
    generation = <int32_t> get_integer(take(reader, 4), 4)
    member_id = read_bytes(STRING, reader, True, False)
    instance_id = read_bytes(STRING, reader, True, True)
    commit.group.data = PyUnicode_AsUTF8AndSize(group_id, &commit.group.size)
    # Size, correlation id, no tags, throttle time.
    put_integer(room(writer, 8), <uint64_t> correlation_id & 0xFFFFFFFF, 8)
    put_integer(room(writer, 5), 0, 5)
    count = read_count(reader, writer)
    while count:
        count -= 1
        if not read_topic(commit, version, topics):
            return None
    read_no_fields(reader, writer)
    put_integer(writer.data, writer.used - 4, 4)
    answer = new_bytearray(Buffer, <PyObject *> NOTHING, NULL)
    put(answer, SPLICES_SLOT, NOTHING)
    append(answer, 0, writer)
    packed = PyBytes_FromStringAndSize(<const char *> commit.packed.data, commit.packed.used)
    return (group_id, member_id, generation, instance_id, NO_RETENTION, version, packed), answer


cdef bint read_topic(Commit *commit, int version, dict topics) except -1:
    cdef Reader *reader = &commit.request
    cdef Writer *writer = &commit.answer
    cdef int64_t count
    cdef PyObject *topic
    if version < FIRST_WITH_IDS:
        asked = read_bytes(STRING, reader, True, False)
        write_text(writer, asked, True)
    else:
        asked = read_uuid(reader)
        write_uuid(writer, asked)
    topic = PyDict_GetItemWithError(topics, asked)
    if topic == NULL or commit.group.size > LONGEST_GROUP:
        return False
    # The topic is in the dict, so they stay valid.
    commit.topic.data = PyUnicode_AsUTF8AndSize((<object> topic).name, &commit.topic.size)
    put_uuid(commit.topic_id, (<object> topic).topic_id)
    commit.partitions = (<object> topic).partitions
    count = read_count(reader, writer)
    while count:
        count -= 1
        if not read_partition(commit):
            return False
    read_no_fields(reader, writer)
    return True


cdef bint read_partition(Commit *commit) except -1:
    cdef Reader *reader = &commit.request
    cdef const uint8_t *data = take(reader, 16)
    cdef int32_t index = <int32_t> get_integer(data, 4)
    cdef int64_t size = read_length(reader, True, True)
    if not 0 <= index < commit.partitions or size > commit.longest_metadata:
        return False
    pack(commit, data, take_text(reader, max(size, 0)), max(size, 0))
    put_integer(room(&commit.answer, 6), <uint64_t> index << 16, 6)  # and no error
    read_no_fields(reader, &commit.answer)
    return True


cdef const uint8_t *take_text(Reader *reader, Py_ssize_t size) except NULL:
    """Check that the bytes are UTF-8."""
    cdef const uint8_t *data = take(reader, size)
    cdef Py_ssize_t index
    for index in range(size):
        if data[index] > 127:
            PyUnicode_DecodeUTF8(<const char *> data, size, NULL)
            break
    return data


cdef int pack(Commit *commit, const uint8_t *numbers, const uint8_t *metadata, Py_ssize_t size) except -1:
    """Write the record of an offset. Partition, offset and leader epoch are copied from the request."""
    cdef Py_ssize_t key_size = 10 + commit.group.size + commit.topic.size
    cdef Py_ssize_t value_size = 41 + uvarint_size(size + 1) + size
    cdef uint8_t *out = room(&commit.packed, 8 + key_size + value_size)
    put_integer(out, <uint64_t> key_size << 32 | <uint64_t> value_size, 8)
    put_integer(out + 8, 1, 2)
    out = put_bytes(put_name(put_name(out + 10, commit.group), commit.topic), numbers, 4)
    put_integer(out, 4, 2)
    out = put_bytes(out + 2, numbers + 4, 12)
    out = put_bytes(put_uvarint(out, size + 1), metadata, size)
    put_integer(out, 0, 8)
    put_integer(out + 8, 0x010010, 3)
    put_bytes(out + 11, commit.topic_id, 16)
    return 0


cdef inline uint8_t *put_name(uint8_t *out, Text name) noexcept:
    put_integer(out, name.size, 2)
    return put_bytes(out + 2, <const uint8_t *> name.data, name.size)


cdef inline uint8_t *put_bytes(uint8_t *out, const uint8_t *data, Py_ssize_t size) noexcept:
    memcpy(out, data, size)
    return out + size


cdef int64_t read_count(Reader *reader, Writer *writer) except -1:
    cdef int64_t count = read_length(reader, True, False)
    if not 0 <= count <= reader.end - reader.position:
        raise ValueError(f"an array of {count} does not fit")
    write_length(writer, count, True, False)
    return count


cdef int read_no_fields(Reader *reader, Writer *writer) except -1:
    """Skip the tagged fields; none is defined."""
    read_tags(NO_FIELDS, reader, None)
    return write_integer(writer, 0, 1)
