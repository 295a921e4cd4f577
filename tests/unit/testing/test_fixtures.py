"""The fixtures, the test case of unittest, and ``python -m ottla.testing``, as users have them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.compat.waiting import until

from ottla import Admin, Broker, Consumer, OttlaError, Producer
from ottla.testing import SharedBroker, contents


def run(code: str, tmp_path: Path, *options: str) -> tuple[int, str]:
    """Run tests in another process, without our own conftest; return the exit code and the output."""
    (tmp_path / "test_of_a_user.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *options]
    done = subprocess.run(
        [*command, "test_of_a_user.py"], cwd=tmp_path, timeout=120, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_a_failed_test_shows_what_was_in_the_topics(tmp_path: Path) -> None:
    code, output = run(
        """
        import ottla
        import pytest

        @pytest.fixture
        def shop():
            with ottla.Broker() as broker:
                yield broker

        def test_orders(ottla_broker, shop):
            for broker in (ottla_broker, shop):
                with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                    producer.send("orders", b"an order", key=b"alice").get(30)
            assert ottla_broker.topics["orders"].values() == [b"another order"]
        """,
        tmp_path,
    )
    assert code == 1
    for fixture in ("ottla_broker", "shop"):
        assert f" {fixture} at the end of the test" in output
    assert output.count("topic orders: 1 record\n  0@0  alice: an order") == 2


def test_a_setup_or_teardown_that_fails_shows_it_too(tmp_path: Path) -> None:
    code, output = run(
        """
        import ottla
        import pytest

        def write(broker, topic):
            with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send(topic, b"1").get(30)

        @pytest.fixture
        def filled(ottla_broker):
            write(ottla_broker, "filled")
            assert False

        @pytest.fixture(scope="module")
        def shop():
            with ottla.Broker() as broker:
                yield broker

        @pytest.fixture(scope="module")
        def opened(shop):
            write(shop, "opened")
            assert False

        @pytest.fixture
        def emptied(ottla_broker):
            yield
            write(ottla_broker, "emptied")
            pytest.fail("it is not empty")

        @pytest.fixture
        def shared(ottla_shared_broker):
            yield
            write(ottla_shared_broker, ottla_shared_broker.topic("shared"))
            assert False

        def test_filled(filled):
            pass

        def test_opened(opened):
            pass

        def test_emptied(emptied):
            pass

        def test_shared(shared):
            pass

        def test_that_passes(ottla_broker, shop):
            write(ottla_broker, "kept")
        """,
        tmp_path,
    )
    assert code == 1
    assert "3 passed, 4 errors" in output, output
    for fixture, phase, topic in (
        ("ottla_broker", "setup", "filled"),
        ("shop", "setup", "opened"),
        ("ottla_broker", "teardown", "emptied"),
        ("ottla_shared_broker", "teardown", "shared"),
    ):
        told = rf"-+ {fixture} at the end of the {phase} -+\ntopic {topic}: 1 record\n  0@0  1\n"
        assert len(re.findall(told, output)) == 1, told
    assert output.count("at the end of the") == 4


def test_a_marker_that_cannot_work_is_an_error(tmp_path: Path) -> None:
    code, output = run(
        """
        import pytest

        @pytest.mark.ottla(3)
        def test_without_a_name(ottla_broker):
            pass

        @pytest.mark.ottla(num_partitions=3)
        def test_of_a_shared_broker(ottla_shared_broker):
            pass
        """,
        tmp_path,
    )
    assert code == 1
    assert "takes configs by name, such as num_partitions=3, not 3" in output
    assert "define a fixture ottla_session_broker of scope session" in output


def test_tests_share_a_broker_in_each_process_of_xdist(tmp_path: Path) -> None:
    code, output = run(
        """
        import ottla
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_orders(ottla_shared_broker, number):
            shared = ottla_shared_broker
            assert "orders" not in shared.topics
            with ottla.Producer(bootstrap_servers=shared.bootstrap_servers) as producer:
                producer.send(shared.topic("orders"), b"%d" % number).get(30)
            assert list(shared.topics) == ["orders"]
            assert shared.topics["orders"].values() == [b"%d" % number]
            assert shared.topics[shared.topic("orders")].values() == [b"%d" % number]
            shared.faults.cut("Produce")
        """,
        tmp_path,
        "-n",
        "2",
    )
    assert code == 0, output
    assert "4 passed" in output


def test_unittest(tmp_path: Path) -> None:
    file = tmp_path / "test_of_a_user.py"
    file.write_text(
        textwrap.dedent(
            """
            import unittest
            import ottla
            from ottla import aio
            from ottla.testing import BrokerTestCase

            class Orders(BrokerTestCase):
                broker_config = {"num.partitions": 3, "clock": "manual"}

                def test_that_fails(self):
                    with ottla.Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
                        self.assertEqual(producer.partitions_for("orders"), {0, 1, 2})
                        producer.send("orders", b"an order", partition=1).get(30)
                    self.broker.clock.advance(hours=1)
                    self.assertEqual(self.broker.topics["orders"].values(), [])

            class Mistaken(BrokerTestCase):
                broker_config = {"num_partition": 3}

                def test_that_cannot_start(self):
                    pass

            class Phases(BrokerTestCase):
                def write(self, topic):
                    with ottla.Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
                        producer.send(topic, b"1").get(30)

            class InSetUp(Phases):
                def setUp(self):
                    self.write("in-setup")
                    self.fail()

                def test_nothing(self):
                    pass

            class InSubtests(Phases):
                def test_that_fails_in_parts(self):
                    self.write("in-subtests")
                    for number in range(3):
                        with self.subTest(number=number):
                            self.assertEqual(number, 1)

            class InTearDown(Phases):
                def tearDown(self):
                    self.write("in-teardown")
                    self.fail()

                def test_nothing(self):
                    pass

            class InTheOtherOrder(unittest.IsolatedAsyncioTestCase, BrokerTestCase):
                async def test_that_fails(self):
                    async with aio.Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
                        await producer.send_and_wait("in-order", b"1")
                    self.fail()

            class MistakenInTheOtherOrder(unittest.IsolatedAsyncioTestCase, BrokerTestCase):
                broker_config = {"num_partitons": 3}

                async def test_that_cannot_start(self):
                    pass

                @unittest.skip("not now")
                async def test_that_is_skipped(self):
                    pass

            class InAsyncio(BrokerTestCase, unittest.IsolatedAsyncioTestCase):
                async def test_that_passes(self):
                    async with aio.Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
                        await producer.send_and_wait("orders", b"1")
                    self.assertEqual(self.broker.topics["orders"].values(), [b"1"])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "test_of_a_user"],
        cwd=tmp_path, timeout=120, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert "Ran 9 tests" in done.stderr, done.stderr
    assert "FAILED (failures=6, errors=2, skipped=1)" in done.stderr
    assert 'self.assertEqual(self.broker.topics["orders"].values(), [])' in done.stderr
    assert "num_partition. Did you mean num.partitions?" in done.stderr
    assert "num_partitons. Did you mean num.partitions?" in done.stderr
    assert "The broker at the end of the test:\ntopic orders: 1 record\n  1@0  an order" in done.stderr
    for topic, count in (("in-setup", 1), ("in-subtests", 2), ("in-teardown", 1), ("in-order", 1)):
        text = f"The broker at the end of the test:\ntopic {topic}: 1 record\n  0@0  1"
        assert done.stderr.count(text) == count, topic


def test_the_report_shows_topics_although_groups_cannot_be_read(ottla_broker: Broker) -> None:
    """As in a cluster, right after one of its brokers was killed."""

    class Cluster:
        topics = ottla_broker.topics

        @property
        def groups(self) -> None:
            raise OttlaError("nothing listens at 127.0.0.1:1")

    with Producer(bootstrap_servers=ottla_broker.bootstrap_servers) as producer:
        producer.send("orders", b"1")
    expected = ["topic orders: 1 record", "  0@0  1", "the groups cannot be read: nothing listens at 127.0.0.1:1"]
    assert contents(Cluster()).splitlines() == expected


def test_the_report_is_short(ottla_broker: Broker) -> None:
    assert contents(ottla_broker) == "there are no topics and no groups"
    servers = ottla_broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(12):
            producer.send("many", b"%d" % number)
        producer.send("odd", b"x" * 1000, key=b"\xff")
        producer.send("odd", None, key=b"gone")
    with Consumer(bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["many"])
        next(iter(consumer))
        consumer.commit()
        text = contents(ottla_broker)
    assert text.splitlines()[:4] == ["topic many: 12 records", "  … 2 before these", "  0@2  2", "  0@3  3"]
    assert f"  0@0  b'\\xff': {'x' * 100}… (1,000 bytes)" in text
    assert "  0@1  gone: null" in text
    assert text.endswith("group readers: Stable, 1 member, lag 11 (many-0 at 1)")


def test_a_shared_broker_has_names_of_its_own_for_each_test(ottla_shared_broker: SharedBroker) -> None:
    other = SharedBroker(ottla_shared_broker.broker)
    assert other.topic("orders") != ottla_shared_broker.topic("orders") == ottla_shared_broker.topic("orders")
    assert len(ottla_shared_broker.groups) == 0


# ── python -m ottla.testing ───────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_for_other_languages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.testing", "--topic", "orders:3", "--config", "log.retention.ms=1000"]
    with subprocess.Popen([*command, "--manual-clock"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        servers, faults = process.stdout.readline().strip(), process.stdout.readline().strip()
        assert faults.startswith("http://127.0.0.1:")
        with Admin(bootstrap_servers=servers) as admin:
            assert len(admin.describe_topics("orders")["orders"].partitions) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """A shell that starts it in the background and is then killed, like a CI job that is cancelled."""
    out = tmp_path / "out"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f'"{sys.executable}" -m ottla.testing --json > "{out}" & echo $!; wait'],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    until(lambda: out.read_text().endswith("\n") if out.exists() else False, "it has started")
    assert set(json.loads(out.read_text())) == {"bootstrap_servers", "faults"}
    shell.kill()
    shell.wait()
    shell.stdout.close()
    until(lambda: not _lives(pid), "it has ended")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "num.partitions"], "write NAME=VALUE"),
        (["--topic", "orders:many"], "write NAME:PARTITIONS with a number"),
        (["--config", "num.partitons=3"], "Did you mean num.partitions?"),
        (["--snapshot", "/nowhere"], "is not a snapshot"),
    ],
)
def test_mistakes(options: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.testing", *options], timeout=60, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ottla.testing: error: ")
    assert message in done.stderr
