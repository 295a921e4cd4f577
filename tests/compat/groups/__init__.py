"""Consumer groups of several client libraries over real sockets.

members.py     a member of a group, the same for all libraries; what it read and owned is in its `Journal`
drivers/       the libraries, one file each
process.py     a member in a process of its own, to be killed
scenario.py    a group, its members, a stream of records, and what must be true of them
raw.py         the member side of the protocol by hand, for what no library would send
"""
