"""Whether the compiled twins of the hot loops are wanted, where they were built. ``OTTLA_PURE=1`` takes the others."""

import os

PURE = os.environ.get("OTTLA_PURE", "") not in ("", "0")
