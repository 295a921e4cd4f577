"""Batches as `ConsumerRecord` objects, included by `_speedups`: the same objects and errors as `_consuming_pure`.

A record is one object with C numbers inside, made without a call of its `__init__`.
"""

@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class ConsumerRecord:
    """A consumed record; see `ottla.consuming.values`."""

    cdef public str topic
    cdef public int64_t offset
    cdef public int64_t timestamp
    cdef public object key
    cdef public object value
    cdef public object headers
    cdef public object leader_epoch
    cdef public int32_t partition
    cdef public int32_t timestamp_type
    cdef public int32_t serialized_key_size
    cdef public int32_t serialized_value_size

    def __init__(
        self, topic, partition, offset, timestamp=-1, timestamp_type=0, key=None, value=None, headers=(),
        leader_epoch=None, serialized_key_size=-1, serialized_value_size=-1,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    cdef tuple fields(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type, self.key, self.value,
            self.headers, self.leader_epoch, self.serialized_key_size, self.serialized_value_size,
        )

    def __reduce__(self):
        return ConsumerRecord, self.fields()

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self.fields() == (<ConsumerRecord> other).fields()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


def decode_consumed(payload, header, position, str topic, int32_t partition, int64_t min_offset):
    cdef Held held = hold(payload)
    cdef Walk walk
    cdef Span span
    cdef ConsumerRecord record
    cdef list records = []
    epoch = header.partition_leader_epoch
    leader_epoch = None if epoch < 0 else epoch
    start(&walk, &held.view, header, position)
    while step(&walk, &span, position):
        if span.offset < min_offset:
            continue
        record = ConsumerRecord.__new__(ConsumerRecord)
        record.topic = topic
        record.partition = partition
        record.offset = span.offset
        record.timestamp = span.timestamp
        record.timestamp_type = 1 if walk.has_append_time else 0
        record.key = cut(span.key, span.key_length)
        record.value = cut(span.value, span.value_length)
        record.serialized_key_size = span.key_length
        record.serialized_value_size = span.value_length
        record.headers = headers_of(&span, walk.at) if span.header_count else ()
        record.leader_epoch = leader_epoch
        records.append(record)
    return records
