"""Logs on disk: segment files, indexes, producer state, recovery, retention and compaction, in Kafka's own layout."""
