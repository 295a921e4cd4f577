"""Consumer groups: who is in a group, who reads what, and how far. State machines only: no I/O, no clock, no chance."""
