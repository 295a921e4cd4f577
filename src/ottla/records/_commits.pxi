"""The records of offset commits, included by `_speedups`; `_pure.encode_commits` has their layout."""

def make_commits(group_id, offsets, commit_timestamp, expire_timestamp, Py_ssize_t longest, types):
    cdef list records = []
    cdef type key_type, value_type, record_type
    key_type, value_type, record_type = types
    for topic, partition, offset, leader_epoch, metadata, topic_id in offsets:
        if metadata is None:
            metadata = ""
        elif 2 * len(metadata) > longest:
            return None
        key = untracked(key_type, (group_id, topic, partition))
        value = untracked(value_type, (offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id))
        records.append(untracked(record_type, (key, value)))
    return records


cdef inline object untracked(type kind, tuple items):
    """An instance of a tuple subclass that the garbage collector does not track; see `new_record`."""
    cdef Py_ssize_t index
    made = PyType_GenericAlloc(<PyTypeObject *> kind, len(items))
    for index in range(len(items)):
        item = items[index]
        Py_INCREF(item)
        PyTuple_SET_ITEM(<tuple> made, index, item)
    FORGET_HASH(made)
    PyObject_GC_UnTrack(<void *> made)
    return made


cdef struct Text:
    const char *data
    Py_ssize_t size


def encode_commits(records, timestamp, type key_type, type value_type):
    cdef Encoder encoder
    cdef bytearray output = bytearray(1024)
    cdef uint8_t[19] tags
    cdef int tags_size = 0
    topic_id = None
    encoder.used = BATCH_OVERHEAD
    encoder.capacity = 1024
    encoder.index = 0
    encoder.base_timestamp = 0
    note_timestamp(&encoder, timestamp)
    for key, value in records:
        if type(key) is not key_type or type(value) is not value_type or (<tuple> value)[4] != -1:
            return None
        if not tags_size or (<tuple> value)[5] is not topic_id:
            topic_id = (<tuple> value)[5]
            tags_size = write_topic_id(tags, topic_id)
        encode_commit(&encoder, output, <tuple> key, <tuple> value, tags, tags_size)
    PyByteArray_Resize(output, encoder.used)
    return output


cdef int encode_commit(
    Encoder *encoder, bytearray output, tuple key, tuple value, const uint8_t *tags, int tags_size
) except -1:
    cdef Text group = utf8(key[0]), topic = utf8(key[1]), metadata = utf8(value[2])
    cdef int32_t partition = key[2], leader_epoch = value[1]
    cdef int64_t offset = value[0], commit_timestamp = value[3]
    cdef Py_ssize_t key_size = 10 + group.size + topic.size
    cdef Py_ssize_t value_size = 22 + unsigned_size(metadata.size + 1) + metadata.size + tags_size
    cdef Py_ssize_t size = 3 + varint_size(encoder.index) + varint_size(key_size) + varint_size(value_size)
    cdef uint8_t *out
    if group.size > INT16_MAX or topic.size > INT16_MAX:
        raise OverflowError(f"names of {group.size} and {topic.size} bytes")
    size += key_size + value_size
    out = write_varint(room(encoder, output, size), size)
    out[0] = out[1] = 0  # attributes, timestamp delta
    out = write_varint(out + 2, encoder.index)
    out = write_int(write_varint(out, key_size), 1, 2)
    out = write_int(write_name(write_name(out, group), topic), partition, 4)
    out = write_int(write_varint(out, value_size), 4, 2)
    out = write_int(write_int(out, offset, 8), leader_epoch, 4)
    out = write_text(write_unsigned(out, metadata.size + 1), metadata)
    out = write_int(out, commit_timestamp, 8)
    memcpy(out, tags, tags_size)
    out[tags_size] = 0  # headers
    encoder.used = out + tags_size + 1 - <uint8_t *> PyByteArray_AS_STRING(output)
    encoder.index += 1
    return 0


cdef int write_topic_id(uint8_t *tags, topic_id) except -1:
    """The tagged fields: none, or one of number 0 and 16 bytes."""
    cdef bytes raw
    tags[0] = 0
    if topic_id is None:
        return 1
    raw = topic_id.bytes
    tags[0], tags[1], tags[2] = 1, 0, 16
    memcpy(tags + 3, PyBytes_AS_STRING(raw), 16)
    return 19


cdef inline Text utf8(text) except *:
    cdef Text found
    found.data = PyUnicode_AsUTF8AndSize(text, &found.size)
    return found


cdef inline uint8_t *write_name(uint8_t *out, Text name) noexcept nogil:
    return write_text(write_int(out, name.size, 2), name)


cdef inline uint8_t *write_text(uint8_t *out, Text text) noexcept nogil:
    memcpy(out, text.data, text.size)
    return out + text.size
