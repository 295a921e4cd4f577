"""Consumer groups of several client libraries over real sockets.

members.py     a member of a group, the same for all libraries; its `Journal` has what it read and owned
drivers/       the libraries, one file each
process.py     a member in a separate process, which can be killed
scenario.py    a group, its members, a stream of records, and the checks
raw.py         a member with hand-made requests, for what no library would send
"""
