"""MongoDB over TLS, with a certificate or a password, without secrets in any output."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import click
import dns.asyncresolver
import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.rrset
import pytest
import trustme

from revstream.gql.runtime.configuration.settings import Settings
from revstream.streams.core.errors import Unavailable, Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import Driver, MongoOptions
from revstream.streams.mongo.find_options import FindOptions
from tests.support import http
from tests.support.bare_mongod import guarded_mongod
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, ensure_ended, run_command, start_command

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
PASSWORD = "s3cret/with:signs@in?it"
SHOP = "mongodb.shop.test"
DRIVERS = pytest.mark.parametrize("driver", representatives(["motor", "pymongo"], "motor"))


@dataclass(frozen=True, slots=True)
class Guarded:
    """A MongoDB that accepts only TLS; `options` are those of a URI that trusts it."""

    port: int
    directory: Path
    options: str

    def uri(self, *, user: str = "", host: str = "127.0.0.1", more: str) -> str:
        return f"mongodb://{user}{host}:{self.port}/shop?replicaSet=rs0&{self.options}&{more}"

    @property
    def by_password(self) -> str:
        return self.uri(
            user=f"joe:{quote_plus(PASSWORD)}@", more="authSource=admin&authMechanism=SCRAM-SHA-256"
        )

    def by_certificate(self, name: str = "gateway.pem") -> str:
        return self.uri(
            more=f"tlsCertificateKeyFile={self.directory / name}"
            "&authMechanism=MONGODB-X509&authSource=%24external"
        )


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """Run it with the user `joe`, and one who is authenticated by a certificate."""
    # Not pytest's tmp_path, which keeps the directories, 300 MB each, of the last three runs.
    with tempfile.TemporaryDirectory(prefix="revstream-tests-") as name:
        directory = Path(name)
        authority = trustme.CA(organization_name="Shop")
        authority.cert_pem.write_to_path(directory / "ca.pem")
        (directory / "nonsense.pem").write_text("no certificate")
        trustme.CA().cert_pem.write_to_path(directory / "other-ca.pem")
        server = authority.issue_cert(
            "127.0.0.1", SHOP, organization_name="Shop", organization_unit_name="servers"
        )
        server.private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")
        for each in ("gateway", "stranger"):
            client = authority.issue_cert(
                f"{each}@shop.test", organization_name="Shop", organization_unit_name=each
            )
            client.private_key_and_cert_chain_pem.write_to_path(directory / f"{each}.pem")
        with guarded_mongod(
            directory / "data",
            *("--tlsMode", "allowTLS", "--tlsCertificateKeyFile", str(directory / "server.pem")),
            *("--tlsCAFile", str(directory / "ca.pem"), "--tlsAllowConnectionsWithoutCertificates"),
        ) as root:
            roles = [{"role": "readWrite", "db": "shop"}, {"role": "dbAdmin", "db": "shop"}]
            roles += [{"role": "clusterMonitor", "db": "admin"}, {"role": "read", "db": "local"}]
            root.admin.command("createUser", "joe", pwd=PASSWORD, roles=roles)
            # RFC 2253: the most significant part is last.
            root["$external"].command("createUser", "OU=gateway,O=Shop", roles=roles)
            for mode in ("preferTLS", "requireTLS"):
                root.admin.command("setParameter", 1, tlsMode=mode)
            port = root.address[1] if root.address else 0
            yield Guarded(port, directory, f"tls=true&tlsCAFile={directory / 'ca.pem'}")


def serving(guarded: Guarded, model: Path, uri: str, *options: str) -> RunningGateway:
    """Start a gateway with its URI in a file, and with all its output."""
    file = guarded.directory / "uri"
    # Files end with a line end.
    file.write_text(f"{uri}\n")
    return start_command(
        *("serve", "--mongodb-uri-file", str(file), "--schema", str(model), "--port", "0"),
        *("--log-level", "debug", *options),
    )


@pytest.mark.parametrize(("driver", "way"), [("motor", "password"), ("pymongo", "certificate")])
def test_a_gateway_serves_over_tls_and_reveals_no_secret(
    guarded: Guarded, model: Path, driver: str, way: str
) -> None:
    """Neither its log nor its metrics nor its responses have one."""
    uri = guarded.by_password if way == "password" else guarded.by_certificate()
    with ensure_ended(serving(guarded, model, uri, "--driver", driver)) as gateway:
        created = gateway.query('mutation { createThing(document: {name: "lamp"}) { __typename } }')
        assert created == {"createThing": {"__typename": "ThingWritten"}}
        assert gateway.query("{ things { nodes { name } } }")["things"]["nodes"]
        outputs = [http.get(f"{gateway.address}/{page}").text for page in ("metrics", "readyz")]
        outputs.append(str(gateway.post("{ nothing }")))
        assert gateway.stop() == 0
    everything = "".join([*outputs, *gateway.lines])
    for secret in (PASSWORD, quote_plus(PASSWORD), uri, "PRIVATE KEY"):
        assert secret not in everything


def test_the_uri_may_be_in_a_file_named_by_a_variable(guarded: Guarded, model: Path) -> None:
    """The variable's name ends with `_FILE`, as in images of databases."""
    file = guarded.directory / "uri"
    file.write_text(guarded.by_password)
    examined = run_command(
        *("doctor", "--schema", str(model), "--json"), REVSTREAM_MONGODB_URI_FILE=str(file)
    )
    # The result of the check does not matter here: the connection succeeded.
    assert examined.returncode in (0, 1)
    assert len(json.loads(examined.stdout)) > 1, examined.stdout


@DRIVERS
@pytest.mark.parametrize("name", ["joe", "OU=gateway,O=Shop"])
async def test_both_drivers_authenticate_in_both_ways(
    guarded: Guarded, driver: Driver, name: str
) -> None:
    """They are a password by SCRAM, and a certificate by X.509."""
    uri = guarded.by_password if name == "joe" else guarded.by_certificate()
    async with Mongo.connect(uri, "shop", options=MongoOptions(driver=driver)) as mongo:
        status = await mongo.command({"connectionStatus": 1})
        assert await mongo.find("nothing", {}, FindOptions(naive=True)) == []
        assert mongo.wires is not None
        assert len(mongo.wires.open) == 1
    assert [each["user"] for each in status["authInfo"]["authenticatedUsers"]] == [name]


REFUSED: dict[str, tuple[str, str, str]] = {
    "authority": ("ca.pem", "other-ca.pem", "certificate verify failed"),
    "no TLS": ("tls=true&", "tls=false&", "TLS has not been enabled"),
    "password": (quote_plus(PASSWORD), "wr0ng", "authentication failed"),
    "no file": ("/ca.pem", "/cb.pem", ": No such file or directory"),
    "no certificate": ("/ca.pem", "/nonsense.pem", "certificate"),
    "no value": ("shop?", "shop?maxPoolSize=k3ypass&", "maxpoolsize must be an integer"),
    "no option": ("shop?", "shop?passwrd=k3ypass&", "Unknown option"),
    "no mechanism": ("SCRAM-SHA-256", "k3ypass", "authMechanism"),
}


@DRIVERS
@pytest.mark.parametrize(("old", "new", "expected"), REFUSED.values(), ids=REFUSED)
async def test_a_tls_mismatch_is_reported_without_a_secret(
    guarded: Guarded, driver: Driver, old: str, new: str, expected: str
) -> None:
    """The command reports the mismatch in one line."""
    uri = guarded.by_password.replace(old, new)
    assert uri != guarded.by_password
    options = MongoOptions(driver=driver, server_selection_s=1)
    with pytest.raises((Unsuitable, Unavailable)) as caught:
        async with Mongo.connect(uri, "shop", options=options) as mongo:
            await mongo.command({"ping": 1})
    message = str(caught.value)
    assert expected.lower() in message.lower()
    assert "\n" not in message
    for secret in (PASSWORD, quote_plus(PASSWORD), "k3ypass", "wr0ng"):
        assert secret not in message


async def test_a_connection_without_tls_is_reported_as_closed(guarded: Guarded) -> None:
    """MongoDB does not send a reason."""
    uri = f"mongodb://127.0.0.1:{guarded.port}/shop"
    with pytest.raises(Unavailable, match=f"127.0.0.1:{guarded.port}"):
        async with Mongo.connect(uri, "shop", options=MongoOptions(server_selection_s=1)) as mongo:
            await mongo.command({"ping": 1})


async def test_a_certificate_of_no_user_is_refused(guarded: Guarded) -> None:
    """It is signed by the right authority."""
    uri = guarded.by_certificate("stranger.pem")
    with pytest.raises(Unsuitable, match="unknown user"):
        async with Mongo.connect(uri, "shop") as mongo:
            await mongo.command({"ping": 1})


@pytest.mark.parametrize(
    ("content", "given", "expected"),
    [
        (None, None, "uri: No such file or directory"),
        (b" \n", None, "uri: empty"),
        (b"\xff\xfe", None, "uri: not text"),
        (b"mongodb://joe:s3cret@host/x", "mongodb://joe:s3cret@host/y", "both, expected one"),
        (b"mongodb://joe:s3cret@/x", None, "Empty host"),
    ],
    ids=["missing", "empty", "bytes", "both", "wrong"],
)
def test_an_unusable_file_is_named(
    tmp_path: Path, content: bytes | None, given: str | None, expected: str
) -> None:
    """An unusable file is wrong usage, and the error does not show its content."""
    file = tmp_path / "uri"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(click.UsageError) as caught:
        Settings(mongodb_uri=given, mongodb_uri_file=file).with_files_read().database_name()
    assert expected in caught.value.message
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize(
    ("uri", "printed"),
    [
        ("mongodb://a,b:1/shop", "mongodb://a,b:1/shop"),
        ("mongodb://joe:s3cret@a/shop", "mongodb://***@a/shop"),
        ("mongodb://joe:s3cret@a/shop?tls=true", "mongodb://***@a/shop?…"),
        ("mongodb://a/?tlsCertificateKeyFilePassword=s3cret", "mongodb://a/?…"),
        ("mongodb+srv://joe:s3cret?@a/shop", "mongodb+srv://***@a/shop"),
    ],
)
def test_settings_are_printed_without_secrets(uri: str, printed: str) -> None:
    """The output has the address, and nothing that grants access."""
    assert f"mongodb_uri='{printed}'" in repr(Settings(mongodb_uri=uri))


def test_secrets_of_sinks_may_be_in_a_file_too(tmp_path: Path) -> None:
    """The file's line end is removed."""
    file = tmp_path / "secrets"
    file.write_text("whsec_one,whsec_two\n")
    settings = Settings(sink_secrets_file=file).with_files_read()
    assert settings.sink_secrets == "whsec_one,whsec_two"
    assert "whsec" not in repr(settings)


@contextmanager
def names(port: int) -> Iterator[int]:
    """Run a DNS server of one cluster with one member on this port; yields its own port."""
    records = {
        ("_mongodb._tcp.cluster.shop.test.", "SRV"): f"0 0 {port} {SHOP}.",
        ("cluster.shop.test.", "TXT"): '"authSource=admin&replicaSet=rs0"',
    }
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as plain:
        plain.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                wire, client = plain.recvfrom(4096)
                if not wire:
                    return
                request = dns.message.from_wire(wire)
                question = request.question[0]
                reply = dns.message.make_response(request)
                kind = dns.rdatatype.to_text(question.rdtype)
                record = records.get((str(question.name), kind))
                if record is None:
                    reply.set_rcode(dns.rcode.NXDOMAIN)
                else:
                    reply.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, record))
                plain.sendto(reply.to_wire(), client)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield plain.getsockname()[1]
        finally:
            plain.sendto(b"", plain.getsockname())
            thread.join()


@pytest.fixture
def resolved(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Resolve names of `shop.test` to this machine."""
    with names(guarded.port) as port:
        for module in (dns.resolver, dns.asyncresolver):
            resolver = module.Resolver(configure=False)
            resolver.nameservers, resolver.port = ["127.0.0.1"], port
            monkeypatch.setattr(module, "default_resolver", resolver)
        real = socket.getaddrinfo

        def here(host: Any, *more: Any, **named: Any) -> Any:
            return real("127.0.0.1" if host in (SHOP, SHOP.encode()) else host, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", here)
        yield


@DRIVERS
async def test_hosts_and_options_may_be_in_the_dns(
    guarded: Guarded, resolved: None, driver: Driver
) -> None:
    """An SRV URI names a cluster and turns TLS on; its database is known without a DNS query."""
    uri = (
        f"mongodb+srv://joe:{quote_plus(PASSWORD)}@cluster.shop.test/shop"
        f"?tlsCAFile={guarded.directory / 'ca.pem'}"
    )
    assert Settings(mongodb_uri=uri).database_name() == "shop"
    assert PASSWORD not in repr(Settings(mongodb_uri=uri))
    assert quote_plus(PASSWORD) not in repr(Settings(mongodb_uri=uri))
    options = MongoOptions(driver=driver, server_selection_s=20)
    async with Mongo.connect(uri, "shop", options=options) as mongo:
        status = await mongo.command({"connectionStatus": 1})
        assert await mongo.find("nothing", {}, FindOptions(naive=True)) == []
        assert mongo.wires is not None
        assert len(mongo.wires.open) == 1
    assert status["authInfo"]["authenticatedUsers"] == [{"user": "joe", "db": "admin"}]


@DRIVERS
async def test_a_cluster_that_is_not_in_the_dns_is_named(resolved: None, driver: Driver) -> None:
    """The error does not have the password."""
    uri = "mongodb+srv://joe:s3cret@nobody.shop.test/shop"
    assert Settings(mongodb_uri=uri).database_name() == "shop"
    with pytest.raises(Unsuitable, match=r"nobody\.shop\.test") as caught:
        async with Mongo.connect(uri, "shop", options=MongoOptions(driver=driver)) as mongo:
            await mongo.command({"ping": 1})
    assert "s3cret" not in str(caught.value)
