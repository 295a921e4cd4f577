"""``ottla groups reset-offsets``: every scenario, the dry run, and errors."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member

from ottla.times import parse_duration

FAR_FUTURE = "9999-01-01T00:00:00Z"


def committed(ottla: Ottla, group: str) -> dict[int, int]:
    (described,) = json.loads(ottla("groups", "describe", group, "--json").out)
    return {one["partition"]: one["current_offset"] for one in described["offsets"]}


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0, 2: 0}),
        (["--to-latest"], {0: 10, 1: 5, 2: 0}),
        (["--to-offset", "3"], {0: 3, 1: 3, 2: 0}),
        (["--to-offset", "0"], {0: 0, 1: 0, 2: 0}),
        (["--to-current"], {0: 4, 1: 5, 2: 0}),
        (["--by-duration", "1h"], {0: 0, 1: 0, 2: 0}),
        (["--by-duration", "0s"], {0: 10, 1: 5, 2: 0}),
        (["--to-datetime", "2001-01-01T00:00:00Z"], {0: 0, 1: 0, 2: 0}),
        (["--to-timestamp", "0"], {0: 0, 1: 0, 2: 0}),
        (["--to-datetime", FAR_FUTURE], {0: 10, 1: 5, 2: 0}),
    ],
)
def test_each_scenario_goes_where_it_says(
    ottla: Ottla, inactive: Member, records: str, group: str, scenario: list[str], expected: dict[int, int]
) -> None:
    args = ("groups", "reset-offsets", group, "--topic", records, *scenario)
    dry = ottla(*args)
    assert dry.code == 0
    assert "dry run: nothing was changed; use --execute to reset the offsets of 3 partitions" in dry.err
    assert committed(ottla, group) == {0: 4}
    done = ottla(*args, "--execute")
    assert (done.code, done.err, done.out) == (0, "", dry.out)
    assert committed(ottla, group) == expected


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("2001-01-31T08:00:00", "2001-01-31 08:00:00.000"),
        ("2001-01-31T08:00:00.125Z", "2001-01-31 08:00:00.125"),
        ("2001-01-31T08:00:00+05:30", "2001-01-31 02:30:00.000"),
        ("980928000000", "2001-01-31 08:00:00.000"),
    ],
)
def test_a_time_without_a_zone_is_utc_wherever_one_is(
    ottla: Ottla, inactive: Member, records: str, group: str, local_zone: str, given: str, meant: str
) -> None:
    dry = ottla("groups", "reset-offsets", group, "--topic", records, "--to-datetime", given)
    assert f"new offsets: the first records at or after {meant} UTC\n" in dry.err


def test_a_time_that_no_calendar_has(ottla: Ottla, inactive: Member, records: str, group: str) -> None:
    dry = ottla("groups", "reset-offsets", group, "--topic", records, "--to-timestamp", str(2**62))
    assert f"new offsets: the first records at or after {2**62} ms since 1970\n" in dry.err
    assert dry.code == 0


def test_the_plan_shows_where_the_group_is_and_goes(ottla: Ottla, inactive: Member, records: str, group: str) -> None:
    lines = ottla("groups", "reset-offsets", group, "--topic", f"{records}:0,1", "--to-offset", "7").lines
    assert lines[0].split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "NOTE"]
    assert lines[1].split()[:5] == [group, records, "0", "4", "7"]
    assert lines[2].endswith("7 is after the end: using the end, 5")
    plan = json.loads(ottla("groups", "reset-offsets", group, "--topic", records, "--to-latest", "--json").out)
    assert [(one["current_offset"], one["new_offset"], one["status"]) for one in plan] == [
        (4, 10, "dry run"),
        (None, 5, "dry run"),
        (None, 0, "dry run"),
    ]


@pytest.mark.parametrize(("shift", "new", "note"), [("3", 7, ""), ("-4", 0, ""), ("-9", 0, "start"), ("99", 10, "end")])
def test_a_shift_counts_from_the_committed_offset_and_stays_inside(
    ottla: Ottla, inactive: Member, group: str, shift: str, new: int, note: str
) -> None:
    result = ottla("groups", "reset-offsets", group, "--all-topics", "--shift-by", shift, "--execute")
    assert result.code == 0
    assert note in result.text
    assert committed(ottla, group) == {0: new}


def test_what_is_exported_can_be_read_back(
    ottla: Ottla, inactive: Member, records: str, group: str, tmp_path: Path
) -> None:
    saved = ottla("groups", "reset-offsets", group, "--all-topics", "--to-current", "--export")
    assert saved.text == f"{records},0,4\n"
    assert saved.err == ""
    file = tmp_path / "saved.csv"
    file.write_text(f'{saved.text}\n{group},"{records}",1,2\nanother-group,{records},2,0\n')
    assert ottla("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute").code == 0
    assert ottla("groups", "reset-offsets", group, "--from-file", str(file), "--execute").code == 0
    assert committed(ottla, group) == {0: 4, 1: 2}


def test_a_file_may_come_from_a_spreadsheet(
    ottla: Ottla, inactive: Member, records: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "saved.csv"
    file.write_bytes(f"\ufeff{records},0,3\r\n , \r\n{records},1,2\r\n".encode())
    assert ottla("groups", "reset-offsets", group, "--from-file", str(file), "--execute").code == 0
    assert committed(ottla, group) == {0: 3, 1: 2}


def test_a_group_that_does_not_exist_is_made(ottla: Ottla, records: str, group: str) -> None:
    args = ("groups", "reset-offsets", group, "--topic", records, "--to-earliest")
    assert f"group '{group}' does not exist yet: --execute creates it" in ottla(*args).err
    assert group not in ottla("groups", "list", "-q").lines
    assert ottla(*args, "--execute").code == 0
    assert committed(ottla, group) == {0: 0, 1: 0, 2: 0}


def test_a_group_in_use_is_not_reset_and_who_uses_it_is_told(
    ottla: Ottla, active: Member, records: str, group: str
) -> None:
    args = ("groups", "reset-offsets", group, "--all-topics", "--to-earliest")
    dry = ottla(*args)
    assert dry.code == 0
    assert f"group '{group}' has 1 active member, so --execute would fail" in dry.err
    refused = ottla(*args, "--execute")
    assert (refused.code, refused.out) == (1, b"")
    assert re.search(
        r"cannot be reset while it has 1 active member \(state Stable\): stop its consumers first "
        r"\(client worker on 127\.0\.0\.1\).* a killed consumer stays a member until its session timeout expires",
        refused.err,
    )
    assert committed(ottla, group)[0] == 4


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--to-earliest"], 2, "choose the partitions: use either --topic TOPIC[:P,P] or --all-topics"),
        (["--all-topics", "--topic", "{topic}", "--to-earliest"], 2, "choose the partitions: use either"),
        (["--all-topics"], 2, "one of the arguments --to-earliest --to-latest"),
        (["--all-topics", "--to-earliest", "--to-latest"], 2, "not allowed with argument --to-earliest"),
        (["--all-topics", "--to-earliest", "--execute", "--dry-run"], 2, "not allowed with argument"),
        (["--all-topics", "--from-file", "x.csv"], 2, "--from-file names the partitions: remove --topic"),
        (["--all-topics", "--to-current", "--export", "--json"], 2, "remove --json and --execute"),
        (["--topic", "{topic}", "--to-offset", "-1"], 2, "'-1' is not a whole number >= 0"),
        (["--topic", "{topic}", "--shift-by", "some"], 2, "'some' is not a whole number"),
        (["--topic", "{topic}", "--shift-by", "1"], 1, "the group has none for {topic}-1, {topic}-2"),
        (["--topic", "{topic}", "--to-datetime", "soon"], 2, "'soon' is not a time"),
        (["--topic", "{topic}", "--to-datetime", "9" * 24], 2, "is not a time"),
        (["--topic", "{topic}", "--by-duration", "P1M"], 2, "'P1M' is not a duration: write 90m, 36h, 7d"),
        (["--topic", "{topic}:9", "--to-latest"], 1, "topic {topic} has no partition 9: it has 0 to 2"),
        (["--topic", "{topic}x", "--to-latest"], 1, "topic '{topic}x' does not exist; did you mean '{topic}'?"),
        (["--topic", "{topic}:a", "--to-latest"], 2, "is not a list of partitions: write TOPIC or TOPIC:0,1,2"),
        (["--from-file", "missing.csv"], 1, "missing.csv: No such file"),
    ],
)
def test_mistakes_are_told_in_one_line(
    ottla: Ottla, inactive: Member, records: str, group: str, args: list[str], code: int, message: str
) -> None:
    result = ottla("groups", "reset-offsets", group, *[arg.format(topic=records) for arg in args])
    assert (result.code, result.out) == (code, b"")
    assert result.err.count("\n") == 1
    assert message.format(topic=records) in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "line 1: expected topic,partition,offset but found 2 fields"),
        ("{topic},0,1\n{topic},x,1\n", "line 2: partition and offset must be whole numbers"),
        ("{topic},0,1\n{topic},0,2\n", "line 2: partition {topic}-0 appears twice"),
        ("other,{topic},0,1\n", "has no offsets for group '{group}'"),
        ("{topic},7,1\n", "topic {topic} has no partition 7"),
        ("b\xfccher,0,1\n", "offsets.csv is not a UTF-8 CSV file: 'utf-8' codec can't decode byte 0xfc"),
        ("{topic},0," + "1" * 200_000, "offsets.csv is not a UTF-8 CSV file: field larger than field limit"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_line(
    ottla: Ottla, inactive: Member, records: str, group: str, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(text.format(topic=records), encoding="latin-1")
    result = ottla("groups", "reset-offsets", group, "--from-file", str(file), "--execute")
    assert (result.code, result.out) == (1, b"")
    assert message.format(topic=records, group=group) in result.err


@given(st.integers(0, 60), st.integers(0, 400), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_both_notations_of_a_duration_mean_the_same(
    weeks: int, days: int, hours: int, minutes: int, seconds: int
) -> None:
    expected = ((((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    iso = f"P{weeks}W{days}DT{hours}H{minutes}M{seconds}S"
    assert parse_duration(iso) == parse_duration(f"{weeks}w{days}d{hours}h{minutes}m{seconds}s") == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1", "-5m", "5 minutes", "P1H", "1x", "999999999999d", "9" * 400 + "d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        parse_duration(text)
