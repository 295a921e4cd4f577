"""A schema registry as values: the records of its topic, the state they make, what requests change, and compatibility.

Nothing here has a socket, a file or a clock. `ottla.registry_server` serves it over HTTP and keeps the topic.
"""
