# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The codec in C: the same results as `_compiler`.

A schema becomes a plan once: an array of steps for each struct. Decoder and encoder are methods of a plan. No read goes
past the buffer: each is compared with the end first, and each length with the rest before anything is allocated.
"""

import struct
from uuid import UUID, SafeUUID

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLongMask, PyLong_Check
from cpython.memoryview cimport PyMemoryView_Check
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.number cimport PyNumber_Index
from cpython.object cimport Py_NE, PyObject, PyObject_RichCompareBool, PyTypeObject, newfunc
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE, PySequence_GetSlice
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from ottla.protocol import _fields
from ottla.protocol._headers_pure import RequestHeader
from ottla.protocol._fields import Buffer, children_of, empty_value, present, struct_class

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

cdef enum Kind:
    SIGNED, UNSIGNED, BOOL, FLOAT, IDENTIFIER, STRING, BYTES, RECORDS, STRUCT

KINDS = {
    "int8": (SIGNED, 1), "int16": (SIGNED, 2), "int32": (SIGNED, 4), "int64": (SIGNED, 8),
    "uint16": (UNSIGNED, 2), "uint32": (UNSIGNED, 4), "bool": (BOOL, 1), "float64": (FLOAT, 8),
    "uuid": (IDENTIFIER, 16), "string": (STRING, 0), "bytes": (BYTES, 0), "records": (RECORDS, 0), "struct": (STRUCT, 0),
}

cdef int64_t MAX_TAGS = _fields.MAX_TAGS
cdef object StructError = struct.error
cdef dict EMPTY = {}


cdef struct Step:
    Kind kind
    Py_ssize_t size  # of a value, if it is fixed
    bint array
    bint nullable
    bint tagged
    int64_t tag
    int64_t lowest  # of an integer
    int64_t highest
    Py_ssize_t slot  # of the field in an instance of the class
    # Borrowed from `Plan._kept`.
    PyObject *name
    PyObject *default  # NULL: a value is required
    PyObject *empty
    PyObject *nested


cdef class Plan:
    """The layout of a struct in one version: plain fields in order, tagged fields, and fields it does not have."""

    cdef Step *_plain
    cdef Step *_tagged
    cdef Step *_absent
    cdef Py_ssize_t _plain_count, _tagged_count, _absent_count
    cdef bint _flexible
    cdef int64_t _max_items
    cdef object _name, _class, _known
    cdef list _kept

    def __cinit__(self, name, fields, version, flexible, reads, max_items=None):
        here = present(fields, version)
        names = tuple(dict.fromkeys(field.name for field in fields))
        have = {field.name for field in here}
        first = {field.name: field for field in reversed(fields)}
        self._name = name
        self._kept = []
        self._flexible = flexible
        self._max_items = -1 if max_items is None else max_items
        self._class = struct_class(name, names) if reads else None
        self._known = frozenset(names) if _fields.STRICT else None
        plain = [field for field in here if field.tag is None]
        tagged = sorted((field for field in here if field.tag is not None), key=lambda field: field.tag)
        absent = [first[each] for each in names if each not in have] if reads else []
        if len(tagged) > 127:
            raise ValueError(f"{name} has too many tagged fields")
        self._plain_count, self._tagged_count, self._absent_count = len(plain), len(tagged), len(absent)
        self._plain = self._steps(plain, version)
        self._tagged = self._steps(tagged, version)
        self._absent = self._steps(absent, version)

    def __dealloc__(self):
        PyMem_Free(self._plain)
        PyMem_Free(self._tagged)
        PyMem_Free(self._absent)

    cdef Step *_steps(self, list fields, version) except NULL:
        cdef Step *steps = <Step *> PyMem_Calloc(len(fields) + 1, sizeof(Step))
        cdef Py_ssize_t index
        if steps == NULL:
            raise MemoryError
        try:
            for index, field in enumerate(fields):
                self._fill(&steps[index], field, version)
        except BaseException:
            PyMem_Free(steps)
            raise
        return steps

    cdef int _fill(self, Step *step, field, version) except -1:
        cdef int bits
        step.kind, step.size = KINDS[field.type]
        step.array, step.nullable, step.tagged = field.array, field.nullable, field.tag is not None
        step.tag = field.tag or 0
        bits = 8 * step.size
        if step.kind == SIGNED:
            step.highest = INT64_MAX >> (64 - bits)
            step.lowest = -step.highest - 1
        elif step.kind == UNSIGNED:
            step.highest = (<int64_t> 1 << bits) - 1
        step.name = self._keep(field.name)
        step.empty = self._keep(empty_value(field))
        if field.default is not ...:
            step.default = self._keep(field.default)
        if self._class is not None:
            step.slot = slot_of(self._class, field.name)
        if step.kind == STRUCT and field.first <= version <= field.last:
            reads = self._class is not None
            inner = Plan(f"{self._name}_{field.name}", children_of(field), version, self._flexible, reads)
            step.nested = self._keep(inner)
        return 0

    cdef PyObject *_keep(self, value) except NULL:
        self._kept.append(value)
        return <PyObject *> value

    def decode(self, buffer, Py_ssize_t position, Py_ssize_t end):
        """Read a message; return it and where it ended."""
        cdef Reader reader
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= end <= view.len:
                raise IndexError("the message ends too early")
            reader.data = <const uint8_t *> view.buf
            reader.position = position
            reader.end = end
            reader.counts = self._max_items >= 0
            reader.items = self._max_items
            reader.buffer = <PyObject *> buffer
            message = read_struct(self, &reader)
            return message, reader.position
        finally:
            PyBuffer_Release(&view)

    def encode(self, out, message):
        """Append a message to a `Buffer`."""
        cdef Writer writer
        cdef Py_ssize_t before
        if not isinstance(out, Buffer):
            raise TypeError(f"a message must be appended to a Buffer, not to {type(out).__name__}")
        before = PyByteArray_GET_SIZE(out)
        splices = out.splices
        begin(&writer, splices, before)
        try:
            write_struct(self, &writer, message)
            append(out, before, &writer)
        finally:
            release(&writer)

    def frame(self, bytes head, message):
        """Return a frame: its size, the head as it is, the message."""
        cdef Writer writer
        cdef int64_t size
        cdef list splices = []
        begin(&writer, splices, 0)
        try:
            write_integer(&writer, 0, 4)
            write_bytes(&writer, <const uint8_t *> PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
            write_struct(self, &writer, message)
            size = writer.used - 4
            for _, value in splices:
                size += <int64_t> value.length
            if size > INT32_MAX:
                raise StructError(f"a frame of {size} bytes is too large")
            put_integer(writer.data, size, 4)
            out = new_bytearray(Buffer, <PyObject *> NOTHING, NULL)
            put(out, SPLICES_SLOT, splices)
            append(out, 0, &writer)
            return out
        finally:
            release(&writer)


def compile_decoder(name, fields, version, flexible, max_items=None):
    """Return a function (buffer, position, end) -> (struct, position)."""
    return Plan(name, fields, version, flexible, True, max_items).decode


def compile_encoder(name, fields, version, flexible):
    """Return a function (buffer, message) that appends the message."""
    return Plan(name, fields, version, flexible, False).encode


def compile_framer(name, fields, version, flexible):
    """Return a function (head, message) -> buffer that makes a whole frame."""
    return Plan(name, fields, version, flexible, False).frame


# ── slots ────────────────────────────────────────────────────────────────────────────────────────────────────

cdef object MEMBER = type(UUID.int)


cdef Py_ssize_t slot_of(cls, name) except -1:
    """The position of a slot in instances of a class."""
    member = cls.__dict__[name]
    if type(member) is not MEMBER:
        raise TypeError(f"{cls.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject *> member).d_member.offset


cdef inline int put(instance, Py_ssize_t slot, value) except -1:
    cdef PyObject **place = <PyObject **> (<char *> <PyObject *> instance + slot)
    cdef PyObject *before = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *> value
    Py_XDECREF(before)
    return 0


cdef inline bint is_empty(instance, Py_ssize_t slot):
    return (<PyObject **> (<char *> <PyObject *> instance + slot))[0] == NULL


cdef tuple NOTHING = ()
cdef newfunc new_bytearray = (<PyTypeObject *> bytearray).tp_new
cdef newfunc new_tuple = (<PyTypeObject *> tuple).tp_new
cdef Plan NO_FIELDS = Plan("tags", [], 0, True, True)
cdef Py_ssize_t SPLICES_SLOT = slot_of(Buffer, "splices")
cdef Py_ssize_t INT_SLOT = slot_of(UUID, "int")
cdef Py_ssize_t SAFE_SLOT = slot_of(UUID, "is_safe")
cdef object UNKNOWN = SafeUUID.unknown

include "_reading.pxi"
include "_writing.pxi"
include "_headers.pxi"
include "_commits.pxi"
