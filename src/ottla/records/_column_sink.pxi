"""Record batches to Arrow buffers, included by `_columns`.

A batch of n bytes has at most n bytes of keys and n bytes of values. That much room is made first, so that the loop over
its records only copies. Memory that is allocated but not written costs nothing.
"""

cdef enum:
    KEPT_SMALLEST = 16 * 1024
    KEPT_BYTES = 32 * 1024 * 1024
    KEPT_BLOCKS = 256

cdef struct Memory:
    uint8_t *data
    Py_ssize_t capacity

# Memory of freed columns, for the next ones. The system clears new memory page by page, which takes several times as
# long as to fill it, and the allocator would return most of a table's memory.
cdef Memory kept[KEPT_BLOCKS]
cdef Py_ssize_t kept_blocks = 0
cdef Py_ssize_t kept_bytes = 0


cdef Memory take_kept(Py_ssize_t size):
    """Kept memory of about this size, the last used first; without data if there is none."""
    cdef Memory found = Memory(NULL, 0)
    cdef Py_ssize_t index
    if size >= KEPT_SMALLEST:
        for index in range(kept_blocks - 1, -1, -1):
            if size <= kept[index].capacity <= 2 * size:
                found = kept[index]
                drop_kept(index)
                break
    return found


cdef void keep(Memory memory):
    """Keep unused memory in place of the oldest, or free it."""
    global kept_blocks, kept_bytes
    if not KEPT_SMALLEST <= memory.capacity <= KEPT_BYTES:
        free(memory.data)
        return
    while kept_blocks == KEPT_BLOCKS or kept_bytes + memory.capacity > KEPT_BYTES:
        free(kept[0].data)
        drop_kept(0)
    kept[kept_blocks] = memory
    kept_blocks += 1
    kept_bytes += memory.capacity


cdef void drop_kept(Py_ssize_t index):
    global kept_blocks, kept_bytes
    kept_blocks -= 1
    kept_bytes -= kept[index].capacity
    memmove(&kept[index], &kept[index + 1], (kept_blocks - index) * sizeof(Memory))


cdef class Block:
    """Growing memory. As a buffer it shows the used part, and is not written any more."""

    cdef uint8_t *data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        keep(Memory(self.data, self.capacity))

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.used, 1, flags)

    cdef int room(self, Py_ssize_t size) except -1:
        """Make it hold `size` bytes in all."""
        cdef Memory memory
        if size > self.capacity:
            size = max(size, 2 * self.capacity, 64)
            memory = take_kept(size) if self.data == NULL else Memory(NULL, 0)
            if memory.data == NULL:
                memory = Memory(<uint8_t *> realloc(self.data, size), size)
            if memory.data == NULL:
                raise MemoryError
            self.data, self.capacity = memory.data, memory.capacity
        return 0

    cdef Block done(self, Py_ssize_t used):
        """Free the unused part if it is large."""
        cdef Memory memory
        self.used = used
        if used < KEPT_SMALLEST < self.capacity:
            memory = Memory(<uint8_t *> malloc(max(used, 1)), max(used, 1))
            if memory.data != NULL:
                memcpy(memory.data, self.data, used)
                keep(Memory(self.data, self.capacity))
                self.data, self.capacity = memory.data, memory.capacity
        elif used < self.capacity // 4 * 3 or self.data == NULL:
            memory = Memory(<uint8_t *> realloc(self.data, max(used, 1)), max(used, 1))
            if memory.data != NULL:
                self.data, self.capacity = memory.data, memory.capacity
        return self


cdef class Parts:
    """A column of bytes under construction."""

    cdef Block valid
    cdef Block ends
    cdef Block data
    cdef Py_ssize_t rows  # allocated
    cdef int64_t nulls

    def __cinit__(self):
        self.valid = Block()
        self.ends = Block()
        self.data = Block()

    cdef int room(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        cdef Py_ssize_t before = self.valid.capacity
        self.data.room(size)
        self.ends.room(4 * (rows + 1))
        (<int32_t *> self.ends.data)[0] = 0
        self.valid.room((rows + 7) // 8)
        if self.valid.capacity > before:
            memset(self.valid.data + before, 0xFF, self.valid.capacity - before)
        return 0

    cdef object done(self, Py_ssize_t rows):
        self.room(rows, 0)
        cdef int32_t used = (<int32_t *> self.ends.data)[rows]
        valid = self.valid.done((rows + 7) // 8) if self.nulls else None
        return BytesColumn(valid, self.ends.done(4 * (rows + 1)), self.data.done(used), 0, rows, False, self.nulls)


# Where the next record goes: pointers into the blocks, for a loop without the interpreter lock.
cdef struct Output:
    uint8_t *key_valid
    uint8_t *value_valid
    int32_t *key_ends
    int32_t *value_ends
    uint8_t *key_data
    uint8_t *value_data
    int64_t *offsets
    int64_t *timestamps
    int32_t *types
    int32_t type
    int64_t key_nulls
    int64_t value_nulls
    Py_ssize_t rows
    Py_ssize_t max_rows
    int64_t next_offset
    bint has_headers


cdef class ColumnSink:
    """Columns that grow by batches. `finish` returns the buffers and ends the sink."""

    cdef Parts key
    cdef Parts value
    cdef Parts header_key
    cdef Parts header_value
    cdef Block offsets
    cdef Block timestamps
    cdef Block types
    cdef Block list_valid
    cdef Block list_ends
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t headers
    cdef Py_ssize_t lists  # rows in list_ends; 0 until a record has headers
    cdef int64_t list_nulls

    def __cinit__(self, size_hint=0):
        self.key = Parts()
        self.value = Parts()
        self.header_key = Parts()
        self.header_value = Parts()
        self.offsets = Block()
        self.timestamps = Block()
        self.types = Block()
        self.list_valid = Block()
        self.list_ends = Block()
        self.value.room(0, size_hint)

    def take(self, buffer, Py_ssize_t position, Py_ssize_t end, int64_t next_offset, Py_ssize_t max_rows):
        """Take plain batches; stop at the first other one, or at `max_rows`."""
        cdef Held held = hold(buffer)
        if not 0 <= position <= end <= held.view.len:
            raise ValueError(_problems.range_refusal(position, end, held.view.len))
        return self.take_plain(<const uint8_t *> held.view.buf, position, end, next_offset, max_rows)

    def add(self, payload, header, position, int64_t next_offset, Py_ssize_t max_rows):
        """Take the records of one batch from `next_offset` on; return the next offset, or -1 if there is no room."""
        cdef Held held = hold(payload)
        cdef Walk walk
        if self.is_full(held.view.len):
            return -1
        start(&walk, &held.view, header, position)
        return self.add_records(&walk, held.view.len, next_offset, max_rows, position)

    cdef tuple take_plain(
        self, const uint8_t *data, Py_ssize_t position, Py_ssize_t end, int64_t next_offset, Py_ssize_t max_rows
    ):
        cdef const uint8_t *at
        cdef Py_ssize_t size
        cdef int64_t after, reached
        cdef Walk walk
        while end - position >= BATCH_OVERHEAD and self.rows < max_rows:
            at = data + position
            size = LOG_OVERHEAD + <Py_ssize_t> int32(at + 8)
            if not plain(at) or size > end - position or self.is_full(size):
                break
            after = int64(at) + int32(at + 23) + 1
            if after > next_offset:
                start_at(&walk, at, size)
                try:
                    reached = self.add_records(&walk, size, next_offset, max_rows, position)
                except CorruptBatch:
                    break
                next_offset = reached
                if reached < after:
                    break
            position += size
        return position, next_offset

    cdef bint is_full(self, Py_ssize_t size):
        """Whether `size` more bytes might overflow the 32-bit offsets of a column."""
        cdef int64_t room = INT32_MAX - size
        return self.rows > 0 and (
            self.used(self.key) > room
            or self.used(self.value) > room
            or self.header_value.data.used > room
            or self.header_key.data.used > room - 2 * size  # invalid UTF-8 takes three times the room
        )

    cdef int64_t used(self, Parts parts):
        return (<int32_t *> parts.ends.data)[self.rows] if parts.ends.data != NULL else 0

    cdef int64_t add_records(
        self, Walk *walk, Py_ssize_t size, int64_t next_offset, Py_ssize_t max_rows, position
    ) except -1:
        """Return the next offset: of the next batch, or inside this one if `max_rows` was reached."""
        cdef Output out
        cdef Span span
        cdef Problem problem = FINE
        cdef Py_ssize_t before = self.rows
        cdef Py_ssize_t headers = self.headers
        cdef int64_t key_nulls = self.key.nulls, value_nulls = self.value.nulls
        self.open(&out, walk, size, next_offset, max_rows)
        try:
            while True:
                with nogil:
                    problem = copy_records(walk, &span, &out)
                self.rows, self.key.nulls, self.value.nulls = out.rows, out.key_nulls, out.value_nulls
                if problem != FINE:
                    raise CorruptBatch(position, _problems.of_record(walk.index, walk.count, WORDS[problem]))
                if not out.has_headers:
                    break
                self.add_headers(&span, walk.at)
                out.has_headers = False
            if walk.index == walk.count and walk.at != walk.end:
                raise CorruptBatch(position, _problems.left_over(walk.end - walk.at, walk.count))
        except:
            self.back_to(before, headers, key_nulls, value_nulls)
            raise
        if walk.index == walk.count:
            return walk.base_offset + walk.last_delta + 1
        return out.next_offset

    cdef int open(self, Output *out, Walk *walk, Py_ssize_t size, int64_t next_offset, Py_ssize_t max_rows) except -1:
        cdef Py_ssize_t rows = self.rows + walk.count
        self.key.room(rows, self.used(self.key) + size)
        self.value.room(rows, self.used(self.value) + size)
        self.offsets.room(8 * rows)
        self.timestamps.room(8 * rows)
        self.types.room(4 * rows)
        out.key_valid, out.value_valid = self.key.valid.data, self.value.valid.data
        out.key_ends, out.value_ends = <int32_t *> self.key.ends.data, <int32_t *> self.value.ends.data
        out.key_data, out.value_data = self.key.data.data, self.value.data.data
        out.offsets, out.timestamps = <int64_t *> self.offsets.data, <int64_t *> self.timestamps.data
        out.types, out.type = <int32_t *> self.types.data, walk.has_append_time
        out.key_nulls, out.value_nulls = self.key.nulls, self.value.nulls
        out.rows, out.max_rows, out.next_offset = self.rows, max_rows, next_offset
        out.has_headers = False
        return 0

    cdef int add_headers(self, const Span *span, const uint8_t *end) except -1:
        """Copy the headers of the last record, which was checked."""
        cdef const uint8_t *at = span.headers
        cdef const uint8_t *part = at
        cdef int32_t length = 0, index
        self.catch_up(self.rows - 1)
        for index in range(span.header_count):
            read_part(&at, end, &part, &length, HEADER_KEY_LENGTH)
            if is_ascii(part, length):
                self.add_part(self.header_key, part, length)
            else:
                text = PyMemoryView_FromMemory(<char *> part, length, PyBUF_READ)
                good = bytes(text).decode("utf-8", "replace").encode()
                self.add_part(self.header_key, <const uint8_t *> <const char *> good, len(good))
            read_part(&at, end, &part, &length, HEADER_VALUE_LENGTH)
            self.add_part(self.header_value, part, length)
            self.headers += 1
        (<int32_t *> self.list_ends.data)[self.rows] = self.headers
        self.lists = self.rows
        return 0

    cdef int add_part(self, Parts parts, const uint8_t *part, int64_t length) except -1:
        cdef int64_t used = parts.data.used
        if used + length > INT32_MAX:
            raise OverflowError("the headers do not fit into one column")
        parts.room(self.headers + 1, used + max(length, 0))
        if length < 0:
            parts.nulls += 1
            parts.valid.data[self.headers >> 3] &= ~(1 << (self.headers & 7))
        elif length:
            memcpy(parts.data.data + used, part, length)
            parts.data.used = used + length
        (<int32_t *> parts.ends.data)[self.headers + 1] = parts.data.used
        return 0

    cdef int catch_up(self, Py_ssize_t rows) except -1:
        """Rows up to here have no headers; make room for one more."""
        cdef Py_ssize_t row
        cdef Py_ssize_t before = self.list_valid.capacity
        cdef int32_t *ends
        self.list_ends.room(4 * (rows + 2))
        self.list_valid.room((rows + 8) // 8)
        if self.list_valid.capacity > before:
            memset(self.list_valid.data + before, 0xFF, self.list_valid.capacity - before)
        ends = <int32_t *> self.list_ends.data
        ends[0] = 0
        for row in range(self.lists, rows):
            ends[row + 1] = ends[row]
            self.list_valid.data[row >> 3] &= ~(1 << (row & 7))
            self.list_nulls += 1
        self.lists = rows
        return 0

    cdef int back_to(self, Py_ssize_t rows, Py_ssize_t headers, int64_t key_nulls, int64_t value_nulls) except -1:
        """Remove the rows of a damaged batch."""
        set_bits(self.key.valid.data, rows, self.rows)
        set_bits(self.value.valid.data, rows, self.rows)
        self.rows, self.key.nulls, self.value.nulls = rows, key_nulls, value_nulls
        while self.lists > rows:
            self.lists -= 1
            if not self.list_valid.data[self.lists >> 3] & (1 << (self.lists & 7)):
                self.list_nulls -= 1
            self.list_valid.data[self.lists >> 3] |= 1 << (self.lists & 7)
        while self.headers > headers:
            self.headers -= 1
            if not self.header_value.valid.data[self.headers >> 3] & (1 << (self.headers & 7)):
                self.header_value.nulls -= 1
            self.header_value.valid.data[self.headers >> 3] |= 1 << (self.headers & 7)
        for parts in (self.header_key, self.header_value):
            if (<Parts> parts).ends.data != NULL:
                (<Parts> parts).data.used = (<int32_t *> (<Parts> parts).ends.data)[headers]
        return 0

    def finish(self):
        """The buffers of all columns."""
        cdef Py_ssize_t rows = self.rows
        headers = None
        if self.headers:
            self.catch_up(rows)
            headers = HeadersColumn(
                self.list_valid.done((rows + 7) // 8) if self.list_nulls else None,
                self.list_ends.done(4 * (rows + 1)),
                0,
                rows,
                False,
                self.list_nulls,
                self.header_key.done(self.headers),
                self.header_value.done(self.headers),
            )
        return Columns(
            rows,
            self.key.done(rows),
            self.value.done(rows),
            self.offsets.done(8 * rows),
            self.timestamps.done(8 * rows),
            self.types.done(4 * rows),
            headers,
        )


cdef Problem copy_records(Walk *walk, Span *span, Output *out) noexcept nogil:
    """Copy records up to the first one with headers; has_headers says whether there was one."""
    cdef Problem problem
    cdef Py_ssize_t row = out.rows
    cdef int32_t key_end = out.key_ends[row], value_end = out.value_ends[row]
    while walk.index < walk.count and row < out.max_rows:
        problem = read_record(walk, span)
        if problem != FINE:
            return problem
        walk.index += 1
        if span.offset < out.next_offset:
            continue
        out.next_offset = span.offset + 1
        out.offsets[row] = span.offset
        out.timestamps[row] = span.timestamp
        out.types[row] = out.type
        if span.key_length > 0:
            memcpy(out.key_data + key_end, span.key, span.key_length)
            key_end += span.key_length
        elif span.key_length < 0:
            out.key_valid[row >> 3] &= ~(1 << (row & 7))
            out.key_nulls += 1
        if span.value_length > 0:
            memcpy(out.value_data + value_end, span.value, span.value_length)
            value_end += span.value_length
        elif span.value_length < 0:
            out.value_valid[row >> 3] &= ~(1 << (row & 7))
            out.value_nulls += 1
        row += 1
        out.key_ends[row] = key_end
        out.value_ends[row] = value_end
        out.rows = row
        if span.header_count:
            out.has_headers = True
            break
    return FINE


cdef inline bint plain(const uint8_t *at) noexcept nogil:
    """Whether the header is valid, and the batch is neither compressed nor a control batch."""
    cdef int64_t most = (<int64_t> int32(at + 8) - MIN_LENGTH) // MIN_RECORD
    return possible(at) and not at[22] & (COMPRESSION_MASK | CONTROL) and int32(at + 57) <= most


cdef inline void start_at(Walk *walk, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    walk.at = at + BATCH_OVERHEAD
    walk.end = at + size
    walk.index = 0
    walk.count = int32(at + 57)
    walk.next_delta = 0
    walk.last_delta = int32(at + 23)
    walk.base_offset = int64(at)
    walk.base_timestamp = int64(at + 27)
    walk.append_time = int64(at + 35)
    walk.has_append_time = (at[22] & LOG_APPEND_TIME) != 0


cdef inline bint is_ascii(const uint8_t *at, int32_t length) noexcept nogil:
    cdef uint8_t seen = 0
    cdef int32_t index
    for index in range(length):
        seen |= at[index]
    return seen < 0x80


cdef inline void set_bits(uint8_t *bits, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(start, end):
        bits[row >> 3] |= 1 << (row & 7)
