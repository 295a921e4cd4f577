"""Hostile bytes, against a running broker over sockets and against the decoders in this process.

requests.py   requests of every API and version, made from the schema table, in pieces that know what they are
mutations.py  what is done to the pieces and to the bytes
batches.py    record batches that lie, with the CRC made right again, and those that unpack to too much
inputs.py     the mixture of all of these, and what can be wrong below a request, from a seed
heavy.py      inputs of many megabytes, and those that would become that
storm.py      many connections at once, about the same few topics
decoders.py   the functions that read bytes, called directly
live.py       the broker under fire: one input after the other, and everything that must stay true meanwhile
run.py        the command: many inputs, a summary, and the input that failed, to run again
"""
