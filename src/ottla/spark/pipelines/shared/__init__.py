"""One read for many sinks: a source is read and parsed once per micro-batch, for all its sinks and its dead letters.

    layout.py     which sinks share a read, as the checkpoint remembers it. No Spark.
    plans.py      which sinks can share: those whose steps keep no state
    writing.py    the function for `foreachBatch`: keep the batch, and let every sink write it
    backlog.py    a sink with `max_delay`: store records first, and write them in a thread of its own

Every sink is exactly once by itself, because it remembers the numbers of the batches that it has written (see
`sinks.batch_writer`). If one fails, the batch is repeated, and the others skip it.
"""
