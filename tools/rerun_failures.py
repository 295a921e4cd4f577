"""A pytest plugin that runs each failed test once more, alone, and reports it as FLAKY or FAILED.

Load it with ``python -m pytest -p tools.rerun_failures``. A second process runs the test without neighbours, with every
check of the first run. Passing there does not turn the run green: a test that passes on the rerun is listed as
``FLAKY`` with its first failure, and the exit code stays 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter

#: More failures than this have a common cause, which a rerun does not explain.
AT_MOST = 30
#: Lines of the first failure that are shown for a flaky test.
SHOWN = 30


def rerun(config: pytest.Config, nodeid: str) -> subprocess.CompletedProcess[str]:
    """Run one test in a process of its own, with the configuration of this run but for the parallel workers."""
    options = [f"-W{one}" for one in config.option.pythonwarnings or ()]
    options += [f"--override-ini={one}" for one in config.option.override_ini or ()]
    command = [sys.executable, "-m", "pytest", "--no-header", *options, nodeid]
    return subprocess.run(
        command, cwd=config.rootpath, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def shortened(failure: str) -> list[str]:
    """The errors of a failure and where they were raised; the end of one that pytest shows in another form."""
    lines = failure.splitlines()
    return ([line for line in lines if re.match(r"E  |\S+:\d+: ", line)] or lines)[-SHOWN:]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: TerminalReporter, exitstatus: int, config: pytest.Config
) -> Iterator[None]:
    """Sort the failures before pytest prints them, and list the flaky tests below."""
    stats = terminalreporter.stats
    failures: dict[str, list[pytest.TestReport]] = {}
    for kind in ("failed", "error"):
        for report in stats.get(kind, ()):
            if isinstance(report, pytest.TestReport):  # an error of collection fails again
                failures.setdefault(report.nodeid, []).append(report)
    flaky: dict[str, list[pytest.TestReport]] = {}
    if exitstatus == pytest.ExitCode.TESTS_FAILED and len(failures) <= AT_MOST:
        for nodeid, reports in failures.items():
            terminalreporter.write_line(f"Rerunning alone: {nodeid}")
            second = rerun(config, nodeid)
            if second.returncode == 0:
                flaky[nodeid] = reports
            else:
                # Indented, so that only the last line of the run reads like a summary.
                output = textwrap.indent(second.stdout, "    ")
                reports[-1].sections.append((f"Rerun alone, exit code {second.returncode}", output))
    for kind in ("failed", "error"):
        stats[kind] = [report for report in stats.pop(kind, ()) if report.nodeid not in flaky]
        if not stats[kind]:
            del stats[kind]
    if flaky:
        stats["flaky"] = [report for reports in flaky.values() for report in reports[:1]]
    result = yield
    for nodeid, reports in flaky.items():
        terminalreporter.write_line(f"FLAKY {nodeid}", red=True)
        for report in reports:
            for line in shortened(report.longreprtext):
                terminalreporter.write_line(f"    {line}")
    return result
