"""Replication from a seed: the real controller, leader and follower over a simulated ZooKeeper, network and disks."""
