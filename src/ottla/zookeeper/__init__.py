"""What a cluster keeps in ZooKeeper: the metadata log, the brokers that are alive, and the controller.

Only this package imports kazoo, which comes with ``pip install 'ottla[cluster]'``.

    client.py         the session: reads, atomic writes and watches for the event loop
    layout.py         the paths, the version of the layout, the id of the cluster
    metadata_log.py   the records of the controller, in one order for all brokers
    membership.py     which brokers are alive
    election.py       who is the controller
"""
