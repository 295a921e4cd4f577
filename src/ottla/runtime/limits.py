"""Limits that the operating system sets for a process."""

from __future__ import annotations


def raise_open_files_limit() -> None:
    """Raise the limit of open files to the allowed maximum: logs and connections need many.

    >>> raise_open_files_limit()
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS reports a limit that it does not grant
            return
