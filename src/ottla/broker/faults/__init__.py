"""Faults on request, for tests: what a client of a real Kafka may have to survive.

rules.py      which requests fail, and how: values without I/O
asked.py      what a request asks for, and how Kafka could fail it
responses.py  the error response to any request, from its schema
special.py    error responses that depend on more
injector.py   stands in front of the dispatcher while there are rules, so that a broker without rules pays nothing
control.py    all operations by name, on the broker's event loop
http.py       the same operations over HTTP, for other languages and for brokers in other processes
face.py       `Faults`, which users see as ``broker.faults`` and ``cluster.faults``
"""

from ottla.broker.faults.face import Fault, Faults, FullDisk

__all__ = ["Fault", "Faults", "FullDisk"]
