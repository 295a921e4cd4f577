"""Which twins of the hot loops are in use: slow is never silent. One build makes all, but an old one may not have."""

from ottla.net.server.kernels import KERNELS as SOCKETS
from ottla.protocol._kernels import KERNELS as MESSAGES
from ottla.records import KERNELS as RECORDS

KERNELS = RECORDS
if not RECORDS == MESSAGES == SOCKETS:
    KERNELS = f"{RECORDS} (records), {MESSAGES} (messages), {SOCKETS} (sockets)"
