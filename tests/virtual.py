"""The ports of a driver in virtual time, which the lab uses too."""

from __future__ import annotations

from ottla.lab.virtual import AppendFailed as AppendFailed
from ottla.lab.virtual import HasNow as HasNow
from ottla.lab.virtual import Log as Log
from ottla.lab.virtual import Timeline as Timeline
from ottla.lab.virtual import VirtualClock as VirtualClock
from ottla.lab.virtual import VirtualCommit as VirtualCommit
from ottla.lab.virtual import VirtualJournal as VirtualJournal
from ottla.lab.virtual import VirtualReply as VirtualReply
from ottla.lab.virtual import VirtualWakeup as VirtualWakeup
from ottla.lab.virtual import begin as begin
from ottla.lab.virtual import manual_driver as manual_driver
