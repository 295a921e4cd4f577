"""The records and transactions pages over HTTP."""

from __future__ import annotations

import json
from urllib.parse import quote
from urllib.request import urlopen

import httpx
import pytest

from console.conftest import Start
from console.forms import confirm
from ottla import Admin, Broker, NewTopic, Producer
from ottla.serializers import RegistryAvroSerializer, RegistryJsonSerializer

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}
HOSTILE = "<script>alert(1)</script>\u202e\x1b[0m'\"&"


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    # Some records are old: on a slow machine retention would delete them before the last test.
    configs = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("shown", 2, configs=configs)])
    with Producer(broker.client_config()) as producer:
        for number in range(60):
            value = json.dumps({"id": number, "text": HOSTILE}, ensure_ascii=False).encode()
            producer.send("shown", value, key=b"key %d" % number, partition=0, timestamp=1_700_000_000_000 + number)
        producer.send("shown", HOSTILE.encode(), key=None, partition=1, headers=[(HOSTILE, HOSTILE.encode())])
        producer.send("shown", None, key=b"gone", partition=1)
        producer.send("shown", b"", key=b"", partition=1, timestamp=2**62)
        producer.send("shown", b"z" * 100_000, partition=1)
    return "shown"


def test_pages_of_records(console: httpx.Client, topic: str) -> None:
    page = console.get(f"/topics/{topic}/records", params={"limit": "20"})
    assert page.status_code == 200
    assert page.text.count('<tr id="r') == 20
    older = page.text.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert console.get(older).text.count('<tr id="r') == 20
    first = console.get(f"/topics/{topic}/records?from=offset&offset=5&partition=0&limit=1").text
    assert 'id="r0-5"' in first
    assert ">null</span>" in page.text or ">empty</span>" in page.text
    assert 'href="/topics/shown/records"' in console.get("/records?q=sho").text


def test_pages_that_cost_much_are_not_read_again(console: httpx.Client, topic: str) -> None:
    for path in ("records", "records/0/0", "produce", "produce?value=x"):
        assert "data-version" not in console.get(f"/topics/{topic}/{path}").text
    assert "data-version" in console.get("/records").text


def test_hostile_records_are_text(console: httpx.Client, topic: str) -> None:
    for path in (
        f"/topics/{topic}/records?limit=500",
        f"/topics/{topic}/records/1/0",
        f"/topics/{topic}/records?value=text",
    ):
        text = console.get(path).text
        assert "<script>alert" not in text, path
        assert "&lt;script&gt;alert" in text
        assert "\u202e" not in text
        assert "\x1b" not in text
    raw = console.get(f"/topics/{topic}/records/1/0/value")
    assert raw.content == HOSTILE.encode()
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("?from=middle", 400, "from=middle is unknown"),
        ("?partition=9", 400, "shown has no partition 9: it has 0 to 1"),
        ("?from=time&time=soon", 400, "is not a time"),
        ("?at=0:99999999999,7:1", 200, "No records here"),
        ("/0/9999", 404, "There is no record at offset 9999"),
        ("/9/0", 404, "has no partition 9"),
        ("/0/0?value=xml", 400, "value=xml is unknown"),
        ("/1/1/value", 404, "it is null"),
        ("?q=nowhere", 200, "0 records found"),
    ],
)
def test_what_is_wrong_is_told(console: httpx.Client, topic: str, path: str, status: int, told: str) -> None:
    page = console.get(f"/topics/{topic}/records{path}")
    assert (page.status_code, told in page.text) == (status, True), page.text[-3000:]


def test_new_records_are_streamed(console: httpx.Client, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("streamed", 1)])
    with console.stream("GET", "/topics/streamed/records/tail?q=wanted", timeout=20) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        with Producer(broker.client_config()) as producer:
            producer.send("streamed", b"other")
            producer.send("streamed", b"wanted <b>")
        found = []
        for line in lines:
            found.append(line)
            if "wanted" in line:
                break
        assert any(line.startswith("id: 0:") for line in found)
        assert "wanted &lt;b&gt;" in found[-1]
        assert not any("other" in line for line in found)


def test_a_record_is_produced(console: httpx.Client, start: Start, topic: str) -> None:
    values = {
        "key": "k'1",
        "value": "a\r\nb",
        "headers": "trace: 1",
        "partition": "1",
        "key_as": "auto",
        "value_as": "text",
    }
    plan = console.get(f"/topics/{topic}/produce", params=values).text
    assert "ottla produce shown --json --partition 1 --bootstrap-server" in plan
    done = confirm(console, f"/topics/{topic}/produce", **values)
    assert done.status_code == 303
    assert "Wrote%20the%20record%20to%20partition%201" in done.headers["set-cookie"]
    last = console.get(f"/topics/{topic}/records?partition=1&limit=1").text
    assert "k&#39;1" in last
    wrong = console.get(f"/topics/{topic}/produce", params={"value": "x", "value_as": "base64"})
    assert (wrong.status_code, "the value is not base64" in wrong.text) == (400, True)
    reader = start(read_only=True)
    assert confirm(reader, f"/topics/{topic}/produce", **values).status_code == 403


def test_a_large_record_is_produced(console: httpx.Client, topic: str) -> None:
    """The form leads to its plan with a GET, so the value is in the address."""
    url = f"{console.base_url}/topics/{topic}/produce?value={'x' * 200_000}"
    with urlopen(url) as page:
        assert "The value has 200,000 bytes." in page.read().decode()


def test_no_record_is_at_an_offset_that_cannot_be(console: httpx.Client, topic: str) -> None:
    assert console.get(f"/topics/{topic}/records/0/{2**63}").status_code == 404


def test_values_of_a_registry(start: Start) -> None:
    with Broker(registry=True) as broker:
        with Producer(broker.client_config()) as producer:
            url = broker.registry_url
            avro = RegistryAvroSerializer(url, SCHEMA).serialize("t", {"id": 7, "city": "Brno <b>"})
            schema = {"type": "object", "title": "T"}
            text = RegistryJsonSerializer(url, schema).serialize("other", {"name": "ada"})
            for value in (avro, text, b"\0\0\0\x10\0none", b"\0\0\0\0\x01\xff"):
                producer.send("t", value, partition=0)
        page = start(config=broker.client_config(), registry=url).get("/topics/t/records/0/0").text
        assert "Brno &lt;b&gt;" in page
        assert "<small>Avro</small>" in page
        all_ = start(config=broker.client_config(), registry=url).get("/topics/t/records").text
        assert "ada" in all_
        assert "schema id 4096" in all_
        assert "--registry URL" in start(config=broker.client_config()).get("/topics/t/records").text


def test_an_open_transaction_is_shown_and_aborted(console: httpx.Client, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("paid", 1)])
    with Producer({**broker.client_config(), "transactional.id": "billing <b>"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("paid", b"1", partition=0)
        producer.flush()
        page = console.get("/transactions").text
        assert "billing &lt;b&gt;" in page
        assert "/transactions/abort?topic=paid&amp;partition=0&amp;start_offset=0" in page
        assert "open for" in page
        values = {"topic": "paid", "partition": "0", "start_offset": "0"}
        plan = console.get("/transactions/abort", params=values).text
        assert "ottla transactions abort --topic paid --partition 0 --start-offset 0 --yes" in plan
        assert "its records here are lost" in plan
        assert confirm(console, "/transactions/abort", **values).status_code == 303
        assert "Nothing is blocked" in console.get("/transactions").text
        again = console.get("/transactions/abort", params=values)
        assert (again.status_code, "perhaps it is over" in again.text) == (400, True)
        assert "aborted" in console.get("/topics/paid/records").text
    assert "No id matches" in console.get(f"/transactions?q={quote('nobody')}").text
