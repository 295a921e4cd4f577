# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""LZ4 frames of many pieces at once, in C: the same bytes as `_lz4_pure`.

The library used there releases the interpreter lock for each block, and must get it back while another thread may hold
it for milliseconds. Here it is released once for all pieces.

A frame is a header, blocks of at most 64 KiB (a size of 4 bytes, little endian; bit 31: uncompressed) and a size of 0.
A block is a list of sequences:

    token     1  the number of literals (4 bits) and the length of the match minus 4 (4 bits)
    more         if the number of literals is 15: bytes to add, until one is not 255
    literals
    offset    2  the distance back to the match, little endian
    more         if the length is 15: the same

The last sequence ends with at least 5 literals, and no match starts in the last 12 bytes. Matches are found as in
liblz4's fast mode: with a table of the last positions of four bytes, and growing steps while nothing is found.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.list cimport PyList_GET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define EQUAL_BYTES(difference) (__builtin_ctzll(difference) >> 3)
    #else
    #define EQUAL_BYTES(difference) (__builtin_clzll(difference) >> 3)
    #endif
    """
    Py_ssize_t EQUAL_BYTES(uint64_t difference) noexcept nogil

cdef enum:
    BLOCK = 64 * 1024
    MIN_MATCH = 4
    LAST_LITERALS = 5
    NO_MATCH = 12
    HASH_BITS = 13
    SKIP_BITS = 6
    IN_TOKEN = 15
    SPARE = 8  # literals are copied in steps of eight

cdef uint32_t STORED = 0x80000000U


include "_packer.pxi"


cdef struct Piece:
    Py_buffer source
    uint8_t *output
    Py_ssize_t size


def frames(list pieces not None, Py_ssize_t room):
    cdef Py_ssize_t count = len(pieces), taken = 0, index
    cdef uint16_t table[1 << HASH_BITS]
    cdef Piece *piece
    cdef Piece *work = <Piece *> PyMem_Malloc(max(count, 1) * sizeof(Piece))
    cdef list outputs = []
    if work is NULL:
        raise MemoryError
    try:
        for index in range(count):
            piece = &work[index]
            PyObject_GetBuffer(<object> PyList_GET_ITEM(pieces, index), &piece.source, PyBUF_SIMPLE)
            taken += 1
            output = PyByteArray_FromStringAndSize(NULL, room + frame_bound(piece.source.len))
            piece.output = <uint8_t *> PyByteArray_AS_STRING(output)
            outputs.append(output)
        with nogil:
            for index in range(count):
                piece = &work[index]
                memset(piece.output, 0, room)
                piece.size = write_frame(<const uint8_t *> piece.source.buf, piece.source.len, piece.output + room, table)
        for index in range(count):
            PyByteArray_Resize(outputs[index], room + work[index].size)
    finally:
        for index in range(taken):
            PyBuffer_Release(&work[index].source)
        PyMem_Free(work)
    return outputs


cdef Py_ssize_t frame_bound(Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t blocks = (size + BLOCK - 1) // BLOCK
    return 7 + size + size // 255 + blocks * (4 + 16) + 4 + SPARE


cdef Py_ssize_t write_frame(const uint8_t *source, Py_ssize_t size, uint8_t *output, uint16_t *table) noexcept nogil:
    cdef uint8_t *out = output
    cdef Py_ssize_t length, packed
    memcpy(out, b"\x04\x22\x4d\x18\x60\x40\x82", 7)
    out += 7
    while size > 0:
        length = min(size, <Py_ssize_t> BLOCK)
        packed = write_block(source, length, out + 4, table) - out - 4
        if packed < length:
            write_size(out, <uint32_t> packed)
        else:
            packed = length
            memcpy(out + 4, source, length)
            write_size(out, <uint32_t> length | STORED)
        out += 4 + packed
        source += length
        size -= length
    write_size(out, 0)
    return out + 4 - output


cdef uint8_t *write_block(const uint8_t *source, Py_ssize_t size, uint8_t *out, uint16_t *table) noexcept nogil:
    cdef const uint8_t *at = source
    cdef const uint8_t *written = source
    cdef const uint8_t *end = source + size
    cdef const uint8_t *last = end - NO_MATCH + 1
    cdef const uint8_t *match
    cdef uint8_t *token
    if size > NO_MATCH:
        memset(table, 0, sizeof(uint16_t) << HASH_BITS)
        at += 1
        while find(source, &at, last, &match, table):
            while at > written and match > source and (at - 1)[0] == (match - 1)[0]:
                at -= 1
                match -= 1
            token = out
            out = write_literals(out, written, at - written)
            while True:
                out = write_match(out, token, &at, match, end - LAST_LITERALS)
                written = at
                if at >= last:
                    return write_last(out, written, end - written)
                table[hash_of(at - 2)] = <uint16_t> (at - 2 - source)
                match = seen(source, at, table)
                if read32(match) != read32(at):
                    break
                token = out
                token[0] = 0
                out += 1
            at += 1
    return write_last(out, written, end - written)


cdef inline bint find(
    const uint8_t *source, const uint8_t **start, const uint8_t *last, const uint8_t **match, uint16_t *table
) noexcept nogil:
    """Advance to the next position whose four bytes occurred before; False if there is none up to `last`."""
    cdef const uint8_t *at = start[0]
    cdef const uint8_t *following
    cdef uint32_t tries = 1 << SKIP_BITS, step = 1
    while True:
        following = at + step
        if following > last:
            return False
        step = tries >> SKIP_BITS
        tries += 1
        match[0] = seen(source, at, table)
        if read32(match[0]) == read32(at):
            start[0] = at
            return True
        at = following


cdef inline const uint8_t *seen(const uint8_t *source, const uint8_t *at, uint16_t *table) noexcept nogil:
    """The last position of bytes with the same hash; this position replaces it."""
    cdef uint32_t hashed = hash_of(at)
    cdef const uint8_t *before = source + table[hashed]
    table[hashed] = <uint16_t> (at - source)
    return before


cdef inline uint8_t *write_literals(uint8_t *out, const uint8_t *source, Py_ssize_t count) noexcept nogil:
    """Write a token and literals; more than eight bytes must follow the literals."""
    cdef Py_ssize_t done = 0
    out = write_count(out, count)
    while True:
        memcpy(out + done, source + done, SPARE)
        done += SPARE
        if done >= count:
            return out + count


cdef inline uint8_t *write_last(uint8_t *out, const uint8_t *source, Py_ssize_t count) noexcept nogil:
    out = write_count(out, count)
    memcpy(out, source, count)
    return out + count


cdef inline uint8_t *write_count(uint8_t *out, Py_ssize_t count) noexcept nogil:
    if count < IN_TOKEN:
        out[0] = <uint8_t> (count << 4)
        return out + 1
    out[0] = IN_TOKEN << 4
    return write_more(out + 1, count - IN_TOKEN)


cdef inline uint8_t *write_match(
    uint8_t *out, uint8_t *token, const uint8_t **start, const uint8_t *match, const uint8_t *end
) noexcept nogil:
    cdef const uint8_t *at = start[0]
    cdef Py_ssize_t offset = at - match, length
    out[0] = <uint8_t> offset
    out[1] = <uint8_t> (offset >> 8)
    length = equal(at + MIN_MATCH, match + MIN_MATCH, end)
    start[0] = at + MIN_MATCH + length
    if length < IN_TOKEN:
        token[0] |= <uint8_t> length
        return out + 2
    token[0] |= IN_TOKEN
    return write_more(out + 2, length - IN_TOKEN)


cdef inline uint8_t *write_more(uint8_t *out, Py_ssize_t length) noexcept nogil:
    while length >= 255:
        out[0] = 255
        out += 1
        length -= 255
    out[0] = <uint8_t> length
    return out + 1


cdef inline Py_ssize_t equal(const uint8_t *at, const uint8_t *match, const uint8_t *end) noexcept nogil:
    """The number of equal bytes from the two positions, up to the end."""
    cdef const uint8_t *start = at
    cdef uint64_t difference
    while end - at >= 8:
        difference = read64(at) ^ read64(match)
        if difference:
            return at - start + EQUAL_BYTES(difference)
        at += 8
        match += 8
    while at < end and at[0] == match[0]:
        at += 1
        match += 1
    return at - start


cdef inline uint32_t hash_of(const uint8_t *at) noexcept nogil:
    return (read32(at) * <uint32_t> 2654435761U) >> (32 - HASH_BITS)


cdef inline uint32_t read32(const uint8_t *at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


cdef inline uint64_t read64(const uint8_t *at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value


cdef inline void write_size(uint8_t *out, uint32_t value) noexcept nogil:
    out[0] = <uint8_t> value
    out[1] = <uint8_t> (value >> 8)
    out[2] = <uint8_t> (value >> 16)
    out[3] = <uint8_t> (value >> 24)
