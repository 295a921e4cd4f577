"""How the lab and its processes talk: one JSON object in each line, over standard input and output."""

from __future__ import annotations

import json
import queue
import sys
import threading
from typing import Any


def say(event: str, **values: Any) -> None:
    """Tell the lab something."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def commands() -> queue.Queue[dict[str, Any] | None]:
    """The lab's commands, read in a thread; None at the end, when the lab is gone."""
    found: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(json.loads(line))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found
