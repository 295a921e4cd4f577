"""Start a broker with a listener of each protocol, and let a client of another language try every mechanism.

python -m tests.compat.with_secured_broker SCRIPT        runs SCRIPT --cases FILE; Secured.java has the form of the file
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.authorities import Authority
from tests.issuers import Issuer

import ottla

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL = ("SASL_PLAINTEXT", "SASL_SSL")
LISTENERS = {
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "FEW": "SASL_PLAINTEXT",
    "INSIDE": "PLAINTEXT",
}
ACCEPTED, REFUSED = "accepted", "refused"


class Cases:
    """Everything that a client tries."""

    def __init__(self, directory: Path) -> None:
        self._authority, self._stranger = Authority(directory / "ours"), Authority(directory / "theirs")
        self._issuer = Issuer()
        self._keys = self._issuer.publish(directory / "jwks.json")
        self._certificate = self._authority.sign("broker")

    @property
    def config(self) -> dict[str, str]:
        """The config of the broker."""
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.few.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.oauthbearer.jwks.endpoint.url": self._keys,
            "ssl.keystore.location": str(self._certificate),
            "ssl.truststore.location": str(self._authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
        }

    def rows(self, addresses: dict[str, str]) -> Iterator[tuple[str, ...]]:
        """Yield name, address, protocol, mechanism, user, secret, authority, certificate and what is expected."""
        trusted = str(self._authority.certificate)
        for protocol in SASL:
            ca = trusted if protocol == "SASL_SSL" else ""
            for mechanism in MECHANISMS:
                right, wrong = "alice-secret", "wrong"
                if mechanism == "OAUTHBEARER":
                    right, wrong = self._issuer.token("alice"), self._issuer.token("alice", seconds=-60)
                what = f"{protocol} {mechanism}"
                where = addresses[protocol], protocol, mechanism
                yield (what, *where, "alice", right, ca, "", ACCEPTED)
                yield (f"{what} wrong secret", *where, "alice", wrong, ca, "", REFUSED)
                if mechanism != "OAUTHBEARER":
                    yield (f"{what} unknown user", *where, "nobody", right, ca, "", REFUSED)
        few = addresses["FEW"], "SASL_PLAINTEXT", "PLAIN"
        yield ("a mechanism that is not enabled", *few, "alice", "alice-secret", "", "", REFUSED)
        yield from self._tls_rows(addresses, trusted)

    def _tls_rows(self, addresses: dict[str, str], trusted: str) -> Iterator[tuple[str, ...]]:
        own, others = (str(each.sign("client")) for each in (self._authority, self._stranger))
        tls, mutual = (addresses["TLS"], "SSL", "", "", ""), (addresses["MUTUAL"], "SSL", "", "", "")
        yield ("SSL", *tls, trusted, "", ACCEPTED)
        yield ("SSL untrusted broker", *tls, str(self._stranger.certificate), "", REFUSED)
        yield ("SSL client certificate", *mutual, trusted, own, ACCEPTED)
        yield ("SSL no client certificate", *mutual, trusted, "", REFUSED)
        yield ("SSL strange client certificate", *mutual, trusted, others, REFUSED)


def main() -> int:
    script = sys.argv[-1]
    with tempfile.TemporaryDirectory(prefix="ottla-secured-") as name:
        directory = Path(name)
        cases = Cases(directory)
        with ottla.Broker(config=cases.config) as broker:
            servers = broker._running().servers
            addresses = {each.name: f"127.0.0.1:{each.port}" for each in servers}
            with ottla.Admin(bootstrap_servers=addresses["INSIDE"]) as admin:
                admin.create_topics(ottla.NewTopic("secured", 1))
                admin.alter_users({"alice": "alice-secret"})
            file = directory / "cases"
            file.touch(mode=0o600)
            file.write_text("".join("\t".join(row) + "\n" for row in cases.rows(addresses)))
            return subprocess.run([script, "--cases", os.fspath(file)], check=False).returncode


if __name__ == "__main__":
    assert Path("src").is_dir(), "run it from the root of the repository"
    sys.exit(main())
