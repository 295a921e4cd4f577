"""A checkpoint of another pipeline, or of steps that have kept another state, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines import load
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.places import Local
from ottla.spark.pipelines.stateful import check_state

FILE = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "localhost:9092"
[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT, customer STRING, ts BIGINT, op STRING"
STEP
[[sink]]
name = "table"
format = "delta"
path = "table"
"""
WINDOW = """\
[[step]]
name = "minutes"
window = "1 minute"
group_by = ["customer"]
aggregate = {n = "count(*)"}
event_time = "_timestamp"
watermark = "1 minute"
"""
DEDUPE = '[[step]]\nname = "unique"\ndedupe = ["id"]\nwithin = "1 hour"\n'
LATEST = '[[step]]\nname = "newest"\nlatest = ["id", "customer"]\nsequence = "ts"\n'


def checked(path: Path, step: str, *, name: str = "orders", keys: str = "", is_new: bool = False) -> None:
    text = FILE.replace("STEP", step).replace('"orders"', f'"{name}"', 1)
    (path / "orders.toml").write_text(text + keys)
    pipeline = load(path / "orders.toml")
    check_state(Local(path / "state"), "state/table", pipeline, pipeline.sinks[0], is_new=is_new, reset="reset it")


@pytest.mark.parametrize(
    ("step", "old", "new", "told"),
    [
        (WINDOW, '"1 minute"\ng', '"5 minutes"\ng', 'window was "1 minute" and is "5 minutes"'),
        (WINDOW, '["customer"]', '["id"]', 'group_by was ["customer"] and is ["id"]'),
        (WINDOW, "count(*)", "sum(id)", 'aggregate was {"n": "count(*)"} and is {"n": "sum(id)"}'),
        (DEDUPE, '["id"]', '["id", "ts"]', 'dedupe was ["id"] and is ["id", "ts"]'),
        (DEDUPE, DEDUPE, "", "the steps that keep state were dedupe and are none"),
        (LATEST, '"id", ', "", 'latest was ["id", "customer"] and is ["customer"]'),
        (LATEST, '"ts"', '["ts", "id"]', 'sequence was ["ts"] and is ["ts", "id"]'),
        (LATEST, '"ts"\n', '"ts"\nhistory = true\n', "history was false and is true"),
    ],
)
def test_a_change_that_does_not_fit_the_state_is_refused(
    tmp_path: Path, step: str, old: str, new: str, told: str
) -> None:
    checked(tmp_path, step)
    with pytest.raises(WrittenError) as caught:
        checked(tmp_path, step.replace(old, new))
    assert str(caught.value) == (
        f"sink table has rows or state of other steps: {told}. Undo this change. Or, to start again from the "
        "beginning, reset it"
    )
    checked(tmp_path, step)


@pytest.mark.parametrize(
    ("step", "old", "new"),
    [
        (WINDOW, '"1 minute"\ng', '"60 seconds"\ng'),
        (WINDOW, 'watermark = "1 minute"', 'watermark = "2 minutes"'),
        (WINDOW, '"minutes"', '"other_name"'),
        (DEDUPE, "1 hour", "2 hours"),
        (LATEST, '"id", "customer"', '"customer", "id"'),
        (LATEST, '"ts"\n', '"ts"\ndeletes = "op = \'d\'"\n'),
    ],
)
def test_other_changes_are_accepted(tmp_path: Path, step: str, old: str, new: str) -> None:
    checked(tmp_path, step)
    checked(tmp_path, step.replace(old, new))


def test_the_keys_of_a_table_are_remembered(tmp_path: Path) -> None:
    checked(tmp_path, "", keys='keys = ["id"]\n')
    with pytest.raises(WrittenError, match=r'keys was \["id"\] and is \["customer"\]'):
        checked(tmp_path, "", keys='keys = ["customer"]\n')


def test_a_checkpoint_without_batches_takes_every_change(tmp_path: Path) -> None:
    checked(tmp_path, WINDOW)
    checked(tmp_path, DEDUPE, is_new=True)
    with pytest.raises(WrittenError):
        checked(tmp_path, WINDOW)


def test_the_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    checked(tmp_path, "")
    with pytest.raises(WrittenError, match="belongs to pipeline orders, not to others") as caught:
        checked(tmp_path, "", name="others")
    assert "delete the file state/table/declared.table.json, and run it again" in str(caught.value)
    (tmp_path / "state" / "declared.table.json").unlink()
    checked(tmp_path, "", name="others")
