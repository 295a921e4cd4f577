"""Arrow buffers to the payloads of record batches, and rows to partitions, included by `_columns`."""

# A column of bytes, lists or numbers; missing parts are NULL.
cdef struct Column:
    const uint8_t *valid
    const int32_t *narrow
    const int64_t *wide
    const uint8_t *data
    int64_t size
    int64_t first

cdef enum:
    BROKEN = -2


cdef class ColumnSource:
    """The columns of one Arrow batch. `encode` makes payloads of its rows, `partition_rows` distributes them."""

    cdef readonly Py_ssize_t rows
    cdef list held
    cdef Column key
    cdef Column value
    cdef Column timestamp
    cdef Column lists
    cdef Column header_key
    cdef Column header_value
    cdef bint has_key, has_value, has_timestamp, has_headers

    def __cinit__(self, Py_ssize_t rows, key=None, value=None, timestamp=None, headers=None):
        self.rows = rows
        self.held = []
        self.has_key = key is not None
        self.has_value = value is not None
        self.has_timestamp = timestamp is not None
        self.has_headers = headers is not None
        if key is not None:
            self.hold_bytes(&self.key, key, rows)
        if value is not None:
            self.hold_bytes(&self.value, value, rows)
        if timestamp is not None:
            self.hold_numbers(&self.timestamp, timestamp, rows, 8)
        if headers is not None:
            self.hold_ends(&self.lists, headers, rows)
            self.lists.size = headers.key.rows
            self.hold_bytes(&self.header_key, headers.key, headers.key.rows)
            self.hold_bytes(&self.header_value, headers.value, headers.key.rows)

    cdef const uint8_t *take(self, given, int64_t least) except? NULL:
        """Hold a buffer of at least `least` bytes; return its start."""
        cdef Held held
        if given is None and least == 0:
            return NULL
        held = hold(given)
        if held.view.len < least:
            raise ValueError(_problems.column_refusal(held.view.len, least))
        self.held.append(held)
        return <const uint8_t *> held.view.buf

    cdef int hold_bytes(self, Column *column, given, Py_ssize_t rows) except -1:
        self.hold_ends(column, given, rows)
        column.size = 0
        if given.data is not None:
            column.data = self.take(given.data, 0)
            column.size = (<Held> self.held[len(self.held) - 1]).view.len
        return 0

    cdef int hold_ends(self, Column *column, given, Py_ssize_t rows) except -1:
        cdef int64_t ends = given.first + rows + 1
        self.hold_valid(column, given, rows)
        if given.wide:
            column.wide = <const int64_t *> self.take(given.ends, 8 * ends if rows else 0)
        else:
            column.narrow = <const int32_t *> self.take(given.ends, 4 * ends if rows else 0)
        return 0

    cdef int hold_numbers(self, Column *column, given, Py_ssize_t rows, int width) except -1:
        self.hold_valid(column, given, rows)
        column.data = self.take(given.data, width * (given.first + rows) if rows else 0)
        return 0

    cdef int hold_valid(self, Column *column, given, Py_ssize_t rows) except -1:
        if given.rows < rows or given.first < 0:
            raise ValueError(_problems.column_refusal(given.rows, rows))
        memset(column, 0, sizeof(Column))
        column.first = given.first
        if given.valid is not None and given.nulls:
            column.valid = self.take(given.valid, (given.first + rows + 7) // 8)
        return 0

    # ── Payloads ─────────────────────────────────────────────────────────────────────────────────────────────

    def encode(self, order, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit, int64_t default_timestamp):
        """A payload of the rows from `start` on, of at most `limit` bytes, but with at least one row."""
        cdef Held rows = None
        cdef const int32_t *order_of = NULL
        cdef Py_ssize_t there = self.rows
        if order is not None:
            rows = hold(order)
            order_of = <const int32_t *> rows.view.buf
            there = rows.view.len // 4
        if not 0 <= start < stop <= there:
            raise ValueError(_problems.range_refusal(start, stop, there))
        return self.encode_rows(order_of, start, stop, max(limit, BATCH_OVERHEAD), default_timestamp)

    cdef object encode_rows(
        self, const int32_t *order, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit, int64_t default_timestamp
    ):
        cdef bytearray output = PyByteArray_FromStringAndSize(NULL, limit)
        cdef Writer writer
        cdef int64_t row
        writer.used, writer.capacity, writer.index = BATCH_OVERHEAD, limit, 0
        writer.default_timestamp = default_timestamp
        writer.base_timestamp = writer.latest = default_timestamp
        writer.out = <uint8_t *> PyByteArray_AS_STRING(output)
        memset(writer.out, 0, BATCH_OVERHEAD)
        with nogil:
            row = self.write_rows(&writer, order, start, stop)
        if row < 0:
            self.refuse(&writer)
        if row == start:  # one that needs more room than the limit
            writer.capacity = BATCH_OVERHEAD + writer.needed
            PyByteArray_Resize(output, writer.capacity)
            writer.out = <uint8_t *> PyByteArray_AS_STRING(output)
            row = self.write_rows(&writer, order, start, start + 1)
        PyByteArray_Resize(output, writer.used)
        return EncodedColumns(output, writer.index, writer.base_timestamp, writer.latest, row)

    cdef int refuse(self, const Writer *writer) except -1:
        if writer.problem == BAD_OFFSETS:
            raise ValueError(_problems.refusal(writer.row, _problems.COLUMN_OFFSETS))
        if writer.problem == BAD_TIMESTAMP:
            raise ValueError(_problems.refusal(writer.row, _problems.timestamp_refusal(writer.timestamp)))
        if writer.problem == NULL_HEADER_KEY:
            raise ValueError(_problems.refusal(writer.row, _problems.HEADER_KEY_NULL))
        if writer.problem == BAD_ROW:
            raise ValueError(_problems.row_refusal(writer.row, self.rows))
        raise ValueError(_problems.refusal(writer.row, _problems.SIZE_REFUSAL))

    cdef int64_t write_rows(
        self, Writer *writer, const int32_t *order, Py_ssize_t start, Py_ssize_t stop
    ) noexcept nogil:
        """Write rows until the output is full; return the next row, or -1 if a row is invalid."""
        cdef Py_ssize_t at
        cdef int64_t row, timestamp, delta, size, key_length = -1, value_length = -1
        cdef const uint8_t *key = NULL
        cdef const uint8_t *value = NULL
        cdef uint8_t *out
        cdef Headers headers
        headers.count, headers.size, headers.first = 0, 0, 0
        for at in range(start, stop):
            row = order[at] if order != NULL else at
            writer.row = row
            if row < 0 or row >= self.rows:
                return writer_fails(writer, BAD_ROW)
            if self.has_key:
                key_length = bytes_at(&self.key, row, &key)
            if self.has_value:
                value_length = bytes_at(&self.value, row, &value)
            if key_length == BROKEN or value_length == BROKEN:
                return writer_fails(writer, BAD_OFFSETS)
            if self.has_headers and not self.read_headers(writer, row, &headers):
                return -1
            timestamp = writer.default_timestamp
            if self.has_timestamp and is_valid(&self.timestamp, row):
                timestamp = (<const int64_t *> self.timestamp.data)[self.timestamp.first + row]
            writer.timestamp = timestamp
            if writer.index == 0:
                writer.base_timestamp = writer.latest = timestamp
            if not subtract(timestamp, writer.base_timestamp, &delta):
                return writer_fails(writer, BAD_TIMESTAMP)
            size = 1 + varint_size(delta) + varint_size(writer.index) + varint_size(headers.count) + headers.size
            size += part_size(key_length) + part_size(value_length)
            if size > INT32_MAX:
                return writer_fails(writer, TOO_LARGE)
            writer.needed = size + varint_size(size)
            if writer.needed > writer.capacity - writer.used or writer.index == INT32_MAX - 1:
                return at
            out = write_varint(writer.out + writer.used, size)
            out[0] = 0  # attributes
            out = write_varint(out + 1, delta)
            out = write_varint(out, writer.index)
            out = write_part(out, key, key_length)
            out = write_part(out, value, value_length)
            out = write_varint(out, headers.count)
            if headers.count:
                out = self.write_headers(out, &headers)
            writer.used = out - writer.out
            writer.index += 1
            if timestamp > writer.latest:
                writer.latest = timestamp
        return stop

    cdef bint read_headers(self, Writer *writer, int64_t row, Headers *headers) noexcept nogil:
        """Find the headers of a row and their size; False if they are invalid."""
        cdef int64_t index, start, end, length
        cdef const uint8_t *part
        headers.count, headers.size = 0, 0
        if not is_valid(&self.lists, row):
            return True
        start, end = end_at(&self.lists, row), end_at(&self.lists, row + 1)
        if not 0 <= start <= end <= self.lists.size:
            writer_fails(writer, BAD_OFFSETS)
            return False
        if end - start > INT32_MAX:
            writer_fails(writer, TOO_LARGE)
            return False
        headers.first, headers.count = start, end - start
        for index in range(start, end):
            length = bytes_at(&self.header_key, index, &part)
            if length == -1:
                writer_fails(writer, NULL_HEADER_KEY)
                return False
            headers.size += part_size(length)
            if length >= 0:
                length = bytes_at(&self.header_value, index, &part)
                headers.size += part_size(length)
            if length == BROKEN:
                writer_fails(writer, BAD_OFFSETS)
                return False
        return True

    cdef uint8_t *write_headers(self, uint8_t *out, const Headers *headers) noexcept nogil:
        cdef int64_t index, length
        cdef const uint8_t *part
        for index in range(headers.first, headers.first + headers.count):
            length = bytes_at(&self.header_key, index, &part)
            out = write_part(out, part, length)
            length = bytes_at(&self.header_value, index, &part)
            out = write_part(out, part, length)
        return out

    # ── Partitions ───────────────────────────────────────────────────────────────────────────────────────────

    def partition_rows(
        self, assigned, int32_t count, spread, Py_ssize_t turn, int64_t run_bytes, bint hash_keys=True
    ):
        """The rows of each partition, in order, and the next turn of `spread`.

        A row goes to its `assigned` partition, else with `hash_keys` to the one of its key's hash, else to the current
        one of `spread`, which changes after `run_bytes`.
        """
        cdef bytearray chosen = PyByteArray_FromStringAndSize(NULL, 4 * self.rows)
        cdef bytearray order = PyByteArray_FromStringAndSize(NULL, 4 * self.rows)
        cdef bytearray starts = bytearray(8 * (count + 1))
        cdef Held spread_held = hold(spread)
        cdef Column numbers
        cdef Choice choice
        cdef int64_t row
        cdef int32_t *order_at = <int32_t *> PyByteArray_AS_STRING(order)
        cdef bint has_assigned = assigned is not None
        memset(&numbers, 0, sizeof(Column))
        if assigned is not None:
            self.hold_numbers(&numbers, assigned, self.rows, 4)
        if count < 1 or spread_held.view.len < 4 or self.rows > INT32_MAX:
            raise ValueError(_problems.partitions_refusal(count))
        choice.count, choice.run_bytes, choice.run = count, run_bytes, 0
        choice.is_unknown = False
        choice.hash_keys = hash_keys and self.has_key
        choice.spread, choice.choices = <const int32_t *> spread_held.view.buf, spread_held.view.len // 4
        choice.turn = turn % choice.choices
        choice.chosen = <int32_t *> PyByteArray_AS_STRING(chosen)
        choice.starts = <int64_t *> PyByteArray_AS_STRING(starts)
        with nogil:
            row = self.choose(&choice, &numbers, has_assigned)
            if row < 0:
                sort_rows(&choice, self.rows, order_at)
        if row >= 0:
            if choice.is_unknown:
                raise ValueError(_problems.refusal(row, _problems.partition_refusal(choice.partition, count)))
            raise ValueError(_problems.refusal(row, _problems.COLUMN_OFFSETS))
        return PartitionRows(order, list(memoryview(starts).cast("q")), choice.turn)

    cdef int64_t choose(self, Choice *choice, const Column *assigned, bint has_assigned) noexcept nogil:
        """Choose a partition for every row and count them; return an invalid row, or -1."""
        cdef int64_t row, length, value_length
        cdef const uint8_t *key
        cdef int32_t partition
        for row in range(self.rows):
            if has_assigned and is_valid(assigned, row):
                partition = (<const int32_t *> assigned.data)[assigned.first + row]
                if not 0 <= partition < choice.count:
                    choice.is_unknown, choice.partition = True, partition
                    return row
            else:
                length = bytes_at(&self.key, row, &key) if choice.hash_keys else -1
                if length == BROKEN:
                    return row
                if length >= 0:
                    partition = <int32_t> ((murmur2_of(key, length) & 0x7FFFFFFF) % <uint32_t> choice.count)
                else:
                    partition = choice.spread[choice.turn]
                    value_length = bytes_at(&self.value, row, &key) if self.has_value else -1
                    choice.run += max(value_length, 0) + MIN_RECORD
                    if choice.run >= choice.run_bytes:
                        choice.run = 0
                        choice.turn = (choice.turn + 1) % choice.choices
            choice.chosen[row] = partition
            choice.starts[partition] += 1
        return -1


cdef struct Writer:
    uint8_t *out
    Py_ssize_t used
    Py_ssize_t capacity
    int64_t needed
    int64_t index
    int64_t row
    int64_t timestamp
    int64_t default_timestamp
    int64_t base_timestamp
    int64_t latest
    int problem

cdef struct Headers:
    int64_t first
    int64_t count
    int64_t size

cdef struct Choice:
    int32_t *chosen
    int64_t *starts
    const int32_t *spread
    Py_ssize_t choices
    Py_ssize_t turn
    int64_t run
    int64_t run_bytes
    int32_t count
    bint is_unknown
    bint hash_keys
    int32_t partition

cdef enum Refusal:
    BAD_OFFSETS
    BAD_TIMESTAMP
    NULL_HEADER_KEY
    BAD_ROW
    TOO_LARGE


cdef inline int writer_fails(Writer *writer, Refusal problem) noexcept nogil:
    writer.problem = problem
    return -1


cdef void sort_rows(Choice *choice, Py_ssize_t rows, int32_t *order) noexcept nogil:
    """Turn counts into starts, and sort the rows by partition."""
    cdef int64_t total = 0, here
    cdef Py_ssize_t at
    for at in range(choice.count + 1):
        here = choice.starts[at]
        choice.starts[at] = total
        total += here
    for at in range(rows):
        order[choice.starts[choice.chosen[at]]] = <int32_t> at
        choice.starts[choice.chosen[at]] += 1
    for at in range(choice.count, 0, -1):
        choice.starts[at] = choice.starts[at - 1]
    choice.starts[0] = 0


cdef inline bint is_valid(const Column *column, int64_t row) noexcept nogil:
    row += column.first
    return column.valid == NULL or (column.valid[row >> 3] >> (row & 7)) & 1


cdef inline int64_t end_at(const Column *column, int64_t row) noexcept nogil:
    return column.wide[column.first + row] if column.wide != NULL else column.narrow[column.first + row]


cdef inline int64_t bytes_at(const Column *column, int64_t row, const uint8_t **part) noexcept nogil:
    """Find the bytes of a row; return their length, -1 for a null, or BROKEN if they would be outside the data."""
    cdef int64_t start, end
    if not is_valid(column, row):
        return -1
    start, end = end_at(column, row), end_at(column, row + 1)
    if not 0 <= start <= end <= column.size:
        return BROKEN
    part[0] = column.data + start
    return end - start


cdef inline bint subtract(int64_t left, int64_t right, int64_t *difference) noexcept nogil:
    """False if the difference overflows."""
    if (right < 0 and left > INT64_MAX + right) or (right > 0 and left < INT64_MIN + right):
        return False
    difference[0] = left - right
    return True
