"""Which kernels are in use, compiled or pure Python. They can differ after an incomplete build."""

from ottla.net.server.kernels import KERNELS as SOCKETS
from ottla.protocol._kernels import KERNELS as MESSAGES
from ottla.records import KERNELS as RECORDS

KERNELS = RECORDS
if not RECORDS == MESSAGES == SOCKETS:
    KERNELS = f"{RECORDS} (records), {MESSAGES} (messages), {SOCKETS} (sockets)"
