"""Clock, timers, the event loop and the runner that drives pure machines over a journal."""
