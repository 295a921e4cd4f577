"""Kafka's own programs on ottla: Streams, Connect, MirrorMaker and the command-line tools, with kill -9.

`make compat-ecosystem`, or `python -m tests.ecosystem [NAME…]`. Needs Java 17 or newer, and Maven for the jars.

jvm.py        starts programs from Kafka's jars
streams.py    words are counted exactly once while instances and the broker are killed
connect.py    a file goes through a topic into another while workers and the broker are killed
mirror.py     a topic, its configs and the offsets of a group are mirrored from one broker to another
tools.py      the output of Kafka's tools on ottla, compared with that on Apache Kafka
"""
