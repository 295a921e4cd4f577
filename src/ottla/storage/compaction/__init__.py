"""Log compaction: which log is next, the process that rewrites segments, and taking over the result."""
