"""Kafka's protocol: the APIs, and the encoding of their messages in every version. Pure.

apis.py         the keys and versions of the APIs
codec.py        encode and decode messages
commits.py      the fast path of OffsetCommit
_schemas.py     the table of all fields, generated
_fields.py      shared by both versions of the codec
_kernels.py     chooses `_walker` (Cython; _reading.pxi, _writing.pxi) or `_compiler` (Python)
"""
