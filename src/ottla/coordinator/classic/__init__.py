"""Groups of the classic protocol, in which one member, the leader, assigns the partitions."""
