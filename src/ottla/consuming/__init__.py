"""What a consumer decides, without I/O: state machines that take values and the time and return requests and waits.

values.py         what users see: ConsumerRecord, ConsumerRecords, OffsetAndMetadata, listeners, interceptors
errors.py         what only consumers raise
subscription.py   what to read: topics, a pattern, or partitions
positions.py      where each assigned partition is read: reset, seek, pause, validation
sessions.py       fetch sessions (KIP-227): what to send to a broker that remembers the last fetch
fetching.py       what to fetch next and from which broker; what a response means
batches.py        which fetched batches are read: aborted transactions and control batches are not
buffer.py         what was fetched and not handed out yet
membership.py     what both group protocols share: requests, duties, generations
classic.py        a member of a classic group: join, sync, heartbeat
leading.py        what the leader of a classic group does: assign, and notice changed topics
consumer.py       a member of the consumer protocol (KIP-848): heartbeat and reconcile
commits.py        which offsets are committed and when, and what the response means
"""
