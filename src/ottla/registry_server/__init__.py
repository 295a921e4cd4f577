"""A schema registry over HTTP: `http.py` speaks HTTP, `topic.py` keeps ``_schemas``, `service.py` joins them.

What requests mean and change is in `ottla.registry`.
"""
