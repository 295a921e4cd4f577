"""Consumer groups of KIP-848: the coordinator assigns the partitions, and members follow at their own pace.

`group.py` has the group, which is made of the other files. `groups.py` has all groups of a shard.
"""
