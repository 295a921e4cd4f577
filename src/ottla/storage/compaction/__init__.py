"""Log compaction: choose the next log, rewrite its segments in a process, and install the result."""
