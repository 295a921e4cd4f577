"""The header of a request, included by `_walker`; see `_headers_pure`."""

def read_header(buffer, dict flexible_from):
    cdef Reader reader
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        reader.data = <const uint8_t *> view.buf
        reader.position, reader.end = 0, view.len
        reader.counts = False
        return header_of(&reader, flexible_from)
    finally:
        PyBuffer_Release(&view)


cdef object header_of(Reader *reader, dict flexible_from):
    cdef const uint8_t *start = take(reader, 8)
    cdef int version = <int16_t> get_integer(start + 2, 2)
    cdef PyObject *first_flexible
    api_key = <int16_t> get_integer(start, 2)
    client_id = read_bytes(STRING, reader, False, True)
    first_flexible = PyDict_GetItemWithError(flexible_from, api_key)
    if first_flexible != NULL and version >= <int> <object> first_flexible:
        read_tags(NO_FIELDS, reader, None)
    arguments = ((api_key, version, <int32_t> get_integer(start + 4, 4), client_id, reader.position),)
    return new_tuple(RequestHeader, <PyObject *> arguments, NULL)
