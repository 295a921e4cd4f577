"""Kafka's messages as values: which APIs exist, and their bytes in every version. Pure.

apis.py         the keys and versions of the APIs
codec.py        what everybody calls: messages to bytes and back
_schemas.py     the table of all fields, generated
_fields.py      what both twins of the codec are made of
_kernels.py     which twin is in use: `_walker` (Cython; _reading.pxi, _writing.pxi) or `_compiler`
"""
