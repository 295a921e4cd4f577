"""The clock, the event loop, the journal, and the runner that drives pure state machines."""
