"""Modes: whether a subject takes new schemas, and whether they come with their ids."""

from __future__ import annotations

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
