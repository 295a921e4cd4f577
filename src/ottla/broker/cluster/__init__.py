"""A broker as a member of a cluster: metadata in ZooKeeper, the controller, connections to the other brokers.

`member.py` is the entry. It needs kazoo, so only brokers with ``zookeeper.connect`` import it.
"""
