"""``ottla lab --real``: the same scenarios with real processes, a real broker and a real ZooKeeper."""
