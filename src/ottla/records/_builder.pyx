# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The producer's work for each record, in C: the same as `_builder_pure`, which explains it.

No lock protects a batch: an append holds the interpreter lock from start to end. So nothing in it may let another
thread run. What could (a new object may start the garbage collector, which may call anything) happens before the batch
is changed. The garbage collector does not track futures: there are millions of them.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_CheckExact
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport INT32_MAX, INT64_MIN
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from ottla.records import _builder_pure as pure
from ottla.records import _problems

include "_bytes.pxi"

cdef enum:
    NO_ROOM = -1


cdef class BatchBuilder:
    cdef bytearray _buffer
    cdef Py_ssize_t _used
    cdef Py_ssize_t _capacity
    cdef int32_t _count
    cdef int64_t _base_timestamp
    cdef int64_t _max_timestamp
    cdef bint _closed
    cdef bint _done
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time
    cdef readonly object error
    cdef readonly list parts
    cdef list _callbacks
    cdef list _watchers

    def __init__(self, bytearray buffer not None):
        if len(buffer) < BATCH_OVERHEAD:
            raise ValueError(f"a batch needs {BATCH_OVERHEAD} bytes for its header")
        self._buffer = buffer
        self._used = BATCH_OVERHEAD
        self._capacity = len(buffer)
        self._base_timestamp = self._max_timestamp = -1
        self.base_offset = self.log_append_time = -1
        self._callbacks = []
        self._watchers = []

    @property
    def buffer(self):
        return self._buffer

    @property
    def size(self):
        return self._used

    @property
    def count(self):
        return self._count

    @property
    def base_timestamp(self):
        return self._base_timestamp

    @property
    def max_timestamp(self):
        return self._max_timestamp

    @property
    def closed(self):
        return self._closed

    @property
    def done(self):
        return self._done

    def close(self):
        self._closed = True

    def append(self, timestamp, key, value, headers=()):
        cdef int overflow = 0
        cdef int64_t time = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow or (self._count and not fits(time, self._base_timestamp)):
            raise ValueError(_problems.refusal(self._count, _problems.timestamp_refusal(timestamp)))
        parts = header_parts(headers, self._count) if headers else None
        check_part(key, self._count, "key")
        check_part(value, self._count, "value")
        return self.put(time, key, value, parts)

    cdef int32_t put(self, int64_t timestamp, key, value, list parts) noexcept:
        """The index of the record, or NO_ROOM. Key, value and parts are bytes or None; the timestamp fits."""
        cdef int64_t delta = timestamp - self._base_timestamp if self._count else 0
        cdef int64_t size
        cdef Py_ssize_t index, header_count = 0
        cdef uint8_t *out
        if self._closed:
            return NO_ROOM
        size = 1 + varint_size(delta) + varint_size(self._count) + bytes_size(key) + bytes_size(value)
        if parts is not None:
            header_count = PyList_GET_SIZE(parts) // 2
            for index in range(2 * header_count):
                size += bytes_size(<object> PyList_GET_ITEM(parts, index))
        size += varint_size(header_count)
        if self._used + varint_size(size) + size > self._capacity:
            return NO_ROOM
        out = <uint8_t *> PyByteArray_AS_STRING(self._buffer) + self._used
        out = write_varint(out, size)
        out[0] = 0  # attributes
        out = write_varint(out + 1, delta)
        out = write_varint(out, self._count)
        out = write_bytes(out, key)
        out = write_bytes(out, value)
        out = write_varint(out, header_count)
        for index in range(2 * header_count):
            out = write_bytes(out, <object> PyList_GET_ITEM(parts, index))
        self._used = out - <uint8_t *> PyByteArray_AS_STRING(self._buffer)
        if self._count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._count += 1
        return self._count - 1

    def fill(self, payload, int32_t count, int64_t base_timestamp, int64_t max_timestamp):
        cdef const uint8_t[::1] view = payload
        cdef Py_ssize_t size = self._capacity - BATCH_OVERHEAD if payload is None else view.shape[0]
        if self._count or self._closed:
            raise ValueError("only a new batch can be filled")
        if count < 1 or size < 0 or BATCH_OVERHEAD + size > self._capacity:
            raise ValueError(f"{count} records of {size} bytes do not fill a batch of {self._capacity}")
        if payload is not None and size:
            memcpy(PyByteArray_AS_STRING(self._buffer) + BATCH_OVERHEAD, &view[0], size)
        self._used = BATCH_OVERHEAD + size
        self._count = count
        self._base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp
        self._closed = True

    def watch(self, RecordFuture future not None, watcher):
        entry = (future, watcher)
        if self.parts is not None:
            return future.batch.locate(future.index)[0].watch(future, watcher)
        if self._done:
            return False
        self._watchers.append(entry)
        return True

    def unwatch(self, RecordFuture future not None, watcher):
        if self.parts is not None:
            return future.batch.locate(future.index)[0].unwatch(future, watcher)
        forgotten = 0
        while True:
            try:
                self._watchers.remove((future, watcher))
            except ValueError:
                return forgotten
            forgotten += 1

    def call_back(self, RecordFuture future not None, callback):
        entry = (future, callback)
        if self.parts is not None:
            return future.batch.locate(future.index)[0].call_back(future, callback)
        if self._done:
            return False
        self._callbacks.append(entry)
        return True

    def finish(self, int64_t base_offset, int64_t log_append_time, error):
        if self._done or self.parts is not None:
            return [], []
        self._closed = True
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self._done = True
        return self._callbacks, self._watchers

    def split(self, list parts not None):
        cdef int32_t first = 0
        mapped = []
        for part in parts:
            mapped.append((first, part))
            first += (<BatchBuilder> part)._count
        if first != self._count:
            raise ValueError(f"{self._count} records were split into {first}")
        self._closed = True
        self.parts = mapped
        for future, callback in self._callbacks:
            future.batch.locate(future.index)[0].call_back(future, callback)
        for future, watcher in self._watchers:
            future.batch.locate(future.index)[0].watch(future, watcher)

    def locate(self, int32_t index):
        cdef BatchBuilder builder = self
        while builder.parts is not None:
            for first, part in reversed(builder.parts):
                if first <= index:
                    builder, index = part, index - first
                    break
        return builder, index

    metadata = pure.BatchBuilder.metadata
    wait = pure.BatchBuilder.wait
    wait_async = pure.BatchBuilder.wait_async
    finishing = pure.BatchBuilder.finishing
    waiters = pure.BatchBuilder.waiters

    def release(self):
        """Give up the buffer and return it to the caller."""
        self._closed = True
        buffer, self._buffer = self._buffer, None
        self._capacity = 0
        return buffer


@cython.no_gc
cdef class RecordFuture:
    cdef readonly BatchBuilder batch
    cdef readonly int32_t index
    cdef readonly int32_t key_size
    cdef readonly int32_t value_size
    cdef readonly int64_t timestamp

    def __init__(self, BatchBuilder batch not None, int32_t index, int64_t timestamp, int32_t key_size, int32_t value_size):
        self.batch = batch
        self.index = index
        self.timestamp = timestamp
        self.key_size = key_size
        self.value_size = value_size

    def done(self):
        if self.batch.parts is None:
            return self.batch._done
        return self.batch.locate(self.index)[0].done

    def result(self, timeout=None):
        cdef BatchBuilder batch
        if not self.done():
            self.batch.wait(self, timeout)
        batch, index = self.batch.locate(self.index)
        if batch.error is not None:
            raise batch.error
        return batch.metadata(index, self)

    def get(self, timeout=None):
        return self.result(timeout)

    def exception(self, timeout=None):
        if not self.done():
            self.batch.wait(self, timeout)
        return self.batch.locate(self.index)[0].error

    def add_done_callback(self, watcher):
        if not self.batch.watch(self, watcher):
            watcher(self)

    def __await__(self):
        return self.batch.wait_async(self).__await__()

    # The rest is not called for every record: it is the pure version's.
    cancelled = pure.RecordFuture.cancelled
    cancel = pure.RecordFuture.cancel
    is_done = pure.RecordFuture.is_done
    succeeded = pure.RecordFuture.succeeded
    failed = pure.RecordFuture.failed
    remove_done_callback = pure.RecordFuture.remove_done_callback
    add_callback = pure.RecordFuture.add_callback
    add_errback = pure.RecordFuture.add_errback
    _condition = pure.RecordFuture._condition
    _state = pure.RecordFuture._state
    _waiters = pure.RecordFuture._waiters


cdef class Lanes:
    cdef readonly str topic
    cdef readonly Py_ssize_t partitions
    cdef list _open
    cdef public Py_ssize_t sticky
    cdef public int64_t sticky_bytes
    cdef public int64_t sticky_limit

    def __init__(self, str topic not None, Py_ssize_t partitions):
        if partitions < 1:
            raise ValueError("a topic has at least one partition")
        self.topic = topic
        self.partitions = partitions
        self._open = [None] * partitions
        self.sticky = -1

    def open(self, Py_ssize_t partition, BatchBuilder builder):
        if 0 <= partition < self.partitions:
            self._open[partition] = builder

    def opened(self, Py_ssize_t partition):
        return self._open[partition] if 0 <= partition < self.partitions else None


cdef class FastSend:
    cdef object __weakref__
    cdef readonly dict _lanes
    cdef public bint _is_fast
    cdef public bint _hash_keys

    def __init__(self):
        self._lanes = {}
        self._is_fast = False
        self._hash_keys = True

    cdef RecordFuture attempt(self, topic, value, key, partition, timestamp, headers, callback):
        cdef PyObject *found
        cdef PyObject *opened
        cdef Lanes lanes
        cdef BatchBuilder batch
        cdef RecordFuture future
        cdef list parts = None
        cdef tuple entry = None
        cdef Py_ssize_t chosen, before
        cdef int64_t time
        cdef int overflow = 0
        cdef bint sticks = False
        if not self._is_fast or not PyUnicode_CheckExact(topic):
            return None
        if not (value is None or PyBytes_CheckExact(value)) or not (key is None or PyBytes_CheckExact(key)):
            return None
        found = PyDict_GetItem(self._lanes, topic)
        if found is NULL:
            return None
        lanes = <Lanes> <object> found
        if partition is not None:
            if not PyLong_CheckExact(partition):
                return None
            chosen = PyLong_AsLongLongAndOverflow(partition, &overflow)
        elif key is not None and self._hash_keys:
            chosen = (hash_of(key) & 0x7FFFFFFF) % lanes.partitions
        else:
            chosen = lanes.sticky
            sticks = True
        if overflow or chosen < 0 or chosen >= lanes.partitions:
            return None
        if timestamp is None:
            time = milliseconds()
        else:
            if not PyLong_CheckExact(timestamp):
                return None
            time = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
            if overflow or time < 0:
                return None
        if headers is not None:
            parts = exact_parts(headers)
            if parts is None:
                return None
        future = RecordFuture.__new__(RecordFuture)
        if callback is not None:
            entry = (future, callback)
        # From here on, no other thread can run.
        opened = PyList_GET_ITEM(lanes._open, chosen)
        if opened is <PyObject *> None:
            return None
        batch = <BatchBuilder> <object> opened
        if not fits(time, batch._base_timestamp):
            return None
        before = batch._used
        future.index = batch.put(time, key, value, parts)
        if future.index == NO_ROOM:
            return None
        future.batch = batch
        future.timestamp = time
        future.key_size = -1 if key is None else <int32_t> PyBytes_GET_SIZE(key)
        future.value_size = -1 if value is None else <int32_t> PyBytes_GET_SIZE(value)
        if sticks:
            lanes.sticky_bytes += batch._used - before
            if lanes.sticky_bytes >= 2 * lanes.sticky_limit:
                lanes.sticky = -1
        if entry is not None:
            batch._callbacks.append(entry)
        return future

    def _attempt_send(self, topic, value=None, key=None, partition=None, timestamp=None, headers=None, callback=None):
        return self.attempt(topic, value, key, partition, timestamp, headers, callback)

    def send(self, topic, value=None, key=None, partition=None, timestamp=None, headers=None, callback=None, *,
             on_delivery=None, timestamp_ms=None):
        """send(topic, value=None, key=None, partition=None, timestamp=None, headers=None, callback=None)

        Queue a record and return its future immediately.
        """
        if on_delivery is not None or timestamp_ms is not None:
            raise TypeError(_problems.habit_refusal(on_delivery))
        cdef RecordFuture future = self.attempt(topic, value, key, partition, timestamp, headers, callback)
        if future is None:
            return self._send_slowly(topic, value, key, partition, timestamp, headers, callback)
        return future

    def _send_slowly(self, topic, value, key, partition, timestamp, headers, callback):
        raise NotImplementedError


cdef inline uint32_t hash_of(key) noexcept:
    return murmur2_of(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef list exact_parts(headers):
    """The parts of headers that are plain list, tuple, str and bytes; None for other types."""
    cdef list parts = []
    if type(headers) is not list and type(headers) is not tuple:
        return None
    for header in headers:
        if (type(header) is not tuple and type(header) is not list) or len(header) != 2:
            return None
        name, value = header
        if not PyUnicode_CheckExact(name) or not (value is None or PyBytes_CheckExact(value)):
            return None
        parts.append((<str> name).encode("utf-8", "surrogateescape"))
        parts.append(value)
    return parts


def murmur2(bytes data not None):
    return hash_of(data)


cdef inline int64_t milliseconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline bint fits(int64_t timestamp, int64_t base) noexcept nogil:
    """Whether the difference fits into 64 bits."""
    return not ((base < 0 and timestamp > INT64_MAX + base) or (base > 0 and timestamp < INT64_MIN + base))


cdef list header_parts(headers, Py_ssize_t index):
    """Key, value, key, value, … as bytes."""
    cdef list parts = []
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(_problems.refusal(index, _problems.header_key_refusal(key)))
        parts.append(key.encode("utf-8", "surrogateescape"))
        check_part(value, index, "header value")
        parts.append(value)
    return parts


cdef int check_part(part, Py_ssize_t index, str name) except -1:
    if part is None:
        return 0
    if not isinstance(part, bytes):
        raise TypeError(_problems.refusal(index, _problems.type_refusal(name, part)))
    if PyBytes_GET_SIZE(part) > INT32_MAX:
        raise ValueError(_problems.refusal(index, _problems.SIZE_REFUSAL))
    return 0
