"""The reference page in docs/ matches the tables."""

import subprocess
import sys
from pathlib import Path

from ottla.config import BrokerConfig, TopicConfig
from ottla.config.admin import AdminConfig
from ottla.config.consumer import ConsumerConfig
from ottla.config.producer import ProducerConfig
from ottla.config.reference import render
from ottla.config.table import rows

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_page_is_up_to_date() -> None:
    renew = "python -m ottla.config.reference > docs/reference/configuration.md"
    assert PAGE.read_text() == render(), f"the tables have changed: {renew}"


def test_command_prints_the_page() -> None:
    done = subprocess.run([sys.executable, "-m", "ottla.config.reference"], capture_output=True, text=True, check=True)
    assert done.stdout == render()
    assert done.stderr == ""


def test_page_has_every_name_and_no_internal_one() -> None:
    page = render()
    tables = (TopicConfig, BrokerConfig, ProducerConfig, ConsumerConfig, AdminConfig)
    for key in [key for table in tables for key in rows(table).values()]:
        assert (f"\n| `{key.name}` |" in page) is not key.internal
