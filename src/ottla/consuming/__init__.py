"""What a consumer knows and decides, without doing any I/O. Pure machines: time comes in, requests and waits come out.

values.py         what users see: ConsumerRecord, ConsumerRecords, OffsetAndMetadata, listeners, interceptors
errors.py         what only consumers raise
subscription.py   the three ways to say what to read, which exclude each other
positions.py      where each assigned partition is read: reset, seek, pause, validation
sessions.py       fetch sessions (KIP-227): what a fetch has to say to a broker that remembers
fetching.py       what to fetch next, from whom; what a response brings
batches.py        which batches of what was fetched are read: aborted transactions, control batches
buffer.py         what was fetched and not handed out yet
membership.py     what both group protocols share: requests, duties, generations
classic.py        a member of a classic group: join, sync, heartbeat
leading.py        what the leader of a classic group does: assign, and notice that topics changed
consumer.py       a member by the consumer protocol (KIP-848): heartbeat and reconcile
commits.py        which offsets are committed, when, and what the answer means
"""
