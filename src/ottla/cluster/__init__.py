"""A cluster on this machine: processes of ZooKeeper and of brokers."""
