"""Offset commits as bytes, included by `_speedups`; see `_packed_pure` for the layout."""

cdef enum:
    SMALLEST_KEY = 10
    SMALLEST_VALUE = 42
    TIME_AT = 27  # from the end of a value
    ID_AT = 16


cdef struct Packed:
    const uint8_t *key
    Py_ssize_t key_size
    const uint8_t *value
    Py_ssize_t value_size


@cython.final
@cython.no_gc  # It holds bytes and classes only.
@cython.freelist(256)
cdef class PackedCommits:
    cdef readonly bytes data
    cdef readonly str group_id
    cdef Py_ssize_t count
    cdef tuple types

    def __cinit__(self, bytes data not None, Py_ssize_t count, str group_id not None, tuple types not None):
        self.data, self.count, self.group_id, self.types = data, count, group_id, types

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return expand(self)[index]

    def __iter__(self):
        return iter(expand(self))

    def replaces(self, former):
        if type(former) is PackedCommits:
            return same_places(self, <PackedCommits> former)
        return former is None or (len(former) == self.count and list(former) == [key for key, _ in expand(self)])


Sequence.register(PackedCommits)


cdef bint same_places(PackedCommits one, PackedCommits other) except -1:
    cdef Packed mine, its
    cdef const uint8_t *at = begin_of(one.data)
    cdef const uint8_t *other_at = begin_of(other.data)
    if one.count != other.count:
        return False
    while at < end_of(one.data) and other_at < end_of(other.data):
        at = next_packed(at, end_of(one.data), &mine)
        other_at = next_packed(other_at, end_of(other.data), &its)
        if mine.key_size != its.key_size or memcmp(mine.key, its.key, mine.key_size):
            return False
    return True


def pack_commits(bytes data not None, int64_t timestamp, str group_id not None, tuple types not None):
    cdef bytes stamped = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    cdef const uint8_t *at = begin_of(stamped)
    cdef Packed found
    cdef Py_ssize_t count = 0
    while at < end_of(stamped):
        at = next_packed(at, end_of(stamped), &found)
        write_int(<uint8_t *> at - TIME_AT, timestamp, 8)
        count += 1
    return PackedCommits(stamped, count, group_id, types)


def join_commits(commits):
    cdef PackedCommits first = commits[0], each
    cdef list parts = []
    cdef Py_ssize_t count = 0
    for each in commits:
        parts.append(each.data)
        count += each.count
    return PackedCommits(b"".join(parts), count, first.group_id, first.types)


def encode_packed(PackedCommits commits not None, timestamp):
    cdef const uint8_t *at = begin_of(commits.data)
    cdef const uint8_t *end = end_of(commits.data)
    cdef Encoder encoder
    cdef Packed found
    cdef uint8_t *out
    cdef Py_ssize_t size
    # A record has at most 23 bytes in addition to its key and value; here it has 8.
    cdef bytearray output = PyByteArray_FromStringAndSize(NULL, BATCH_OVERHEAD + (end - at) + 15 * commits.count)
    encoder.index = 0
    encoder.base_timestamp = 0
    note_timestamp(&encoder, timestamp)
    out = <uint8_t *> PyByteArray_AS_STRING(output) + BATCH_OVERHEAD
    while at < end:
        at = next_packed(at, end, &found)
        if encoder.index == commits.count:
            raise ValueError(_problems.NOT_PACKED)
        size = 3 + varint_size(encoder.index) + varint_size(found.key_size) + found.key_size
        size += varint_size(found.value_size) + found.value_size
        out = write_varint(out, size)
        out[0] = out[1] = 0  # attributes, timestamp delta
        out = write_part(write_varint(out + 2, encoder.index), found.key, found.key_size)
        out = write_part(out, found.value, found.value_size)
        out[0] = 0  # headers
        out += 1
        encoder.index += 1
    if encoder.index != commits.count:
        raise ValueError(_problems.NOT_PACKED)
    PyByteArray_Resize(output, out - <uint8_t *> PyByteArray_AS_STRING(output))
    seal(<uint8_t *> PyByteArray_AS_STRING(output), PyByteArray_GET_SIZE(output), encoder.index, encoder.latest)
    return output


cdef int seal(uint8_t *batch, Py_ssize_t size, Py_ssize_t count, int64_t timestamp) except -1:
    """Write the header of a batch without a producer, whose records have the same timestamp."""
    if not count:
        raise ValueError("a batch needs at least one record")
    write_int(batch, 0, 8)  # base offset
    write_int(batch + 8, size - LOG_OVERHEAD, 4)
    write_int(batch + 12, -1, 4)  # leader epoch
    batch[16] = MAGIC
    write_int(batch + 21, 0, 2)  # attributes
    write_int(batch + 23, count - 1, 4)
    write_int(batch + 27, timestamp, 8)
    write_int(batch + 35, timestamp, 8)
    memset(batch + 43, 0xFF, 14)  # producer id and epoch, base sequence
    write_int(batch + 57, count, 4)
    write_int(batch + 17, crc_of(batch, size), 4)
    return 0


cdef list expand(PackedCommits commits):
    cdef const uint8_t *at = begin_of(commits.data)
    cdef const uint8_t *end = end_of(commits.data)
    cdef Packed found, last
    cdef type key_type, value_type, record_type
    cdef list records = []
    group = topic = topic_id = None
    last.key, last.key_size, last.value, last.value_size = NULL, 0, NULL, 0
    key_type, value_type, record_type = commits.types
    while at < end:
        at = next_packed(at, end, &found)
        # The names are usually those of the previous record: then use the same objects.
        if not same_names(&found, &last):
            group, topic = name_of(found.key + 2), name_of(found.key + 4 + int16(found.key + 2))
        if topic_id is None or memcmp(at - ID_AT, last.value + last.value_size - ID_AT, ID_AT):
            topic_id = topic_id_of(PyBytes_FromStringAndSize(<const char *> at - ID_AT, ID_AT))
        key = untracked(key_type, (group, topic, int32(found.key + found.key_size - 4)))
        value = untracked(value_type, (
            int64(found.value + 2), int32(found.value + 10), metadata_of(&found), int64(at - TIME_AT), -1, topic_id
        ))
        records.append(untracked(record_type, (key, value)))
        last = found
    return records


cdef const uint8_t *next_packed(const uint8_t *at, const uint8_t *end, Packed *found) except NULL:
    """Find and check the next record; return its end."""
    if end - at >= 8:
        found.key_size, found.value_size = int32(at), int32(at + 4)
        found.key = at + 8
        found.value = found.key + found.key_size
        if (
            found.key_size >= SMALLEST_KEY
            and found.value_size >= SMALLEST_VALUE
            and found.key_size <= end - found.key
            and found.value_size <= end - found.value
            and has_names(found.key, found.key_size - SMALLEST_KEY)
        ):
            return found.value + found.value_size
    raise ValueError(_problems.NOT_PACKED)


cdef inline bint has_names(const uint8_t *key, Py_ssize_t size) noexcept:
    """Whether the lengths of group and topic fit the key."""
    cdef Py_ssize_t group_size = int16(key + 2), topic_size
    if not 0 <= group_size <= size:
        return False
    topic_size = int16(key + 4 + group_size)
    return topic_size >= 0 and group_size + topic_size == size


cdef inline bint same_names(const Packed *one, const Packed *other) noexcept:
    return one.key_size == other.key_size and not memcmp(one.key, other.key, one.key_size - 4)


cdef inline str name_of(const uint8_t *at):
    return PyUnicode_DecodeUTF8(<const char *> at + 2, int16(at), NULL)


cdef str metadata_of(const Packed *found):
    cdef const uint8_t *at = found.value + 14
    cdef const uint8_t *end = found.value + found.value_size - TIME_AT
    cdef uint64_t length
    if read_unsigned(&at, end, 32, &length) != FINE or <int64_t> length - 1 != end - at:
        raise ValueError(_problems.NOT_PACKED)
    return PyUnicode_DecodeUTF8(<const char *> at, end - at, NULL)


cdef inline const uint8_t *begin_of(bytes data) noexcept:
    return <const uint8_t *> PyBytes_AS_STRING(data)


cdef inline const uint8_t *end_of(bytes data) noexcept:
    return begin_of(data) + PyBytes_GET_SIZE(data)
