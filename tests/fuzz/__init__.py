"""Hostile bytes, sent to a running broker and given to the decoders in this process.

requests.py   requests of every API and version, from the schema table, in typed pieces
mutations.py  mutations of the pieces and of the bytes
batches.py    invalid record batches with a correct CRC, and decompression bombs
inputs.py     all inputs of a seed, including errors below the level of requests
heavy.py      inputs of many megabytes, and those that would expand to that
storm.py      many connections that use the same few topics
decoders.py   the functions that read bytes, called directly
live.py       a broker process, its inputs, and the checks
run.py        the command: many inputs, a summary, and the failing input to run again
"""
