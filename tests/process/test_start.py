"""Refusals at start: one sentence that names the cause and the remedy, and an exit code.

There is no traceback and no password.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bare_mongod import BareMongod, bare_mongod
from tests.support.exhaustive import exhaustive, representatives
from tests.support.gateway import run_command

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
TEN_MISTAKES = """
type Product @collection(name: "products") {
  id: ID
  name: Strin!
  size: Size
  twice: Int
  twice: Int
  __odd: Int
  maker: Maker @reference(by: "makerId")
  version: Int!
}
type Order @collection(name: "products") { id: UUID! lines: [Line!]! }
type Line @collection(name: "lines") @index(fields: ["nope"]) { product: ID }
type Empty @collection(name: "") { id: ID! }
type Reading @collection(name: "readings") @indx(fields: ["id"]) { id: Float! }
"""


def refusal(code: int, *arguments: str, **environ: str) -> str:
    """Return the message with which the command ends with that code."""
    ended = run_command(*arguments, **environ)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert "s3cret" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("driver", representatives(["motor", "pymongo"], "motor"))
def test_an_unreachable_mongodb_is_an_error_within_the_time_limit(model: Path, driver: str) -> None:
    """The error has the address and the system's message.

    The option has precedence over the variable, whose limit is longer than the test.
    """
    message = refusal(
        1,
        *("serve", "--schema", str(model), "--port", "0", "--connect-s", "0.5"),
        *("--mongodb-uri", "mongodb://joe:s3cret@127.0.0.1:1/shop?replicaSet=rs0"),
        *("--driver", driver),
        REVSTREAM_CONNECT_S="600",
    )
    assert message.startswith("revstream: MongoDB cannot be reached: 127.0.0.1:1: ")
    assert message.count("\n") == 1


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareMongod]:
    with bare_mongod(tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.mark.parametrize("driver", representatives(["motor", "pymongo"], "motor"))
def test_a_standalone_is_an_error_with_the_steps_to_a_replica_set(
    standalone: BareMongod, model: Path, driver: str
) -> None:
    """Change streams need a replica set."""
    message = refusal(
        1,
        *("serve", "--schema", str(model), "--port", "0", "--database", "shop"),
        *("--mongodb-uri", f"mongodb://127.0.0.1:{standalone.port}/", "--driver", driver),
    )
    assert "standalone" in message
    assert "--replSet" in message
    assert "rs.initiate()" in message


def test_a_set_name_without_members_is_an_error_that_mentions_a_standalone(
    standalone: BareMongod, model: Path
) -> None:
    """The driver leaves a standalone server out, and only reports that the set has no members."""
    message = refusal(
        1,
        *("serve", "--schema", str(model), "--port", "0", "--connect-s", "0.5"),
        *("--mongodb-uri", f"mongodb://127.0.0.1:{standalone.port}/shop?replicaSet=rs0"),
    )
    assert 'for replica set name "rs0"; correct replicaSet in the URI' in message
    assert "standalone" in message
    assert "rs.initiate()" in message


def test_the_doctor_reports_a_standalone_once(standalone: BareMongod, model: Path) -> None:
    """Each further check of the server would repeat it; the sample of the data is examined."""
    uri = f"mongodb://127.0.0.1:{standalone.port}/"
    ended = run_command(
        "doctor", "--mongodb-uri", uri, "--database", "shop", "--schema", str(model)
    )
    assert ended.returncode == 1
    assert ended.stdout.count("standalone") == 1
    assert "oplog:" not in ended.stdout
    assert "data:" in ended.stdout


@pytest.mark.parametrize(
    "options", representatives(["", "?replicaSet=rs0", "?directConnection=true"], "?replicaSet=rs0")
)
def test_a_replica_set_that_is_not_initiated_is_an_error_with_the_command(
    tmp_path_factory: pytest.TempPathFactory, model: Path, options: str
) -> None:
    """The options of the URI do not matter."""
    folder = tmp_path_factory.mktemp("uninitiated")
    with bare_mongod(folder, "--replSet", "rs0") as server:
        message = refusal(
            1,
            *("serve", "--schema", str(model), "--port", "0", "--connect-s", "2"),
            *("--mongodb-uri", f"mongodb://127.0.0.1:{server.port}/shop{options}"),
        )
    assert "not initiated" in message
    assert "rs.initiate()" in message
    assert "standalone" not in message


@pytest.mark.parametrize(
    "command", representatives(["record", "demo", "doctor"], "record", "doctor")
)
def test_a_setting_that_the_command_does_not_use_is_refused(model: Path, command: str) -> None:
    """It would have no effect.

    `demo` uses all of them, and commands beside a server ignore the server's environment.
    """
    ended = run_command(
        command,
        *("--mongodb-uri", "mongodb://127.0.0.1:1/", "--connect-s", "0.2"),
        *("--schema", str(model), "--database", "shop"),
        REVSTREAM_SOCKETS="5",
    )
    refused = "REVSTREAM_SOCKETS: not used by this command; unset it" in ended.stderr
    assert (ended.returncode, refused) == ((2, True) if command == "record" else (1, False))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("postgres://joe:s3cret@host/shop", "mongodb://"),
        pytest.param("mongodb://joe:s3cret@/shop", "Empty host", marks=exhaustive),
        pytest.param("mongodb://joe:x/s3cret@host/shop", "Bad database name", marks=exhaustive),
        pytest.param("mongodb://joe:s3cret%40host/shop", "Percent-encoding", marks=exhaustive),
        ("mongodb://joe:x:s3cret@host/shop", "must be escaped"),
    ],
)
def test_an_invalid_uri_is_refused_without_showing_it(model: Path, uri: str, message: str) -> None:
    """The error names the fault, and shows nothing that may be a password."""
    arguments = ("serve", "--schema", str(model), "--port", "0")
    assert message in refusal(2, *arguments, "--mongodb-uri", uri)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "MongoDB: missing"),
        (("--mongodb-uri", "mongodb://host/x", "--embedded", "db"), "both, expected one"),
        (("--mongodb-uri", "mongodb://host/"), "database: missing, expected its name"),
        (
            ("--mongodb-uri", "mongodb://host/", "--database", "a b"),
            "--database: 'a b', expected",
        ),
        (("--mongodb-uri", "mongodb://host/admin"), "'admin' is MongoDB's own"),
        (("--port", "99999", "--mongodb-uri", "mongodb://host/x"), "127.0.0.1:99999"),
        (("--lease-s", "0"), "--lease-s"),
        (("--nope",), "--nope"),
    ],
)
def test_invalid_settings_are_named(model: Path, arguments: tuple[str, ...], message: str) -> None:
    """Invalid settings are wrong usage, reported before any connection."""
    code = 1 if "99999" in arguments else 2
    settings = arguments if "--port" in arguments else ("--port", "0", *arguments)
    assert message in refusal(code, "serve", "--schema", str(model), *settings)


def test_an_unknown_variable_is_refused_with_a_suggestion(model: Path) -> None:
    """Otherwise a misspelt name would have no effect; each is named."""
    message = refusal(
        2,
        *("serve", "--schema", str(model)),
        REVSTREAM_MONGO_URI="mongodb://joe:s3cret@host/shop",
        REVSTREAM_PROT="80",
    )
    assert "REVSTREAM_MONGO_URI: no setting; did you mean REVSTREAM_MONGODB_URI?" in message
    assert "REVSTREAM_PROT: no setting; did you mean REVSTREAM_PORT?" in message


def test_a_port_that_is_taken_is_reported_at_once(model: Path) -> None:
    """The check is before the connection to MongoDB.

    The error has the options that choose another.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refusal(
            1,
            *("serve", "--schema", str(model), "--port", str(port)),
            *("--mongodb-uri", "mongodb://127.0.0.1:1/shop"),
        )
    assert f"address to listen on: 127.0.0.1:{port}: Address already in use" in message
    assert "--port" in message


def test_a_file_of_settings_is_used_and_its_mistakes_are_refused(model: Path) -> None:
    """The file's port is taken; a path in it is relative to the file."""
    file = model.with_name("revstream.toml")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(
            f'schema = "{model.name}"\n[http]\nport = {port}\n'
            '[mongodb]\nmongodb-uri = "mongodb://joe:s3cret@127.0.0.1:1/shop"\n'
        )
        assert f"127.0.0.1:{port}: Address already in use" in refusal(
            1, "serve", "--config", str(file)
        )
    file.write_text('prot = 1\nmongodb-uri = ["mongodb://joe:s3cret@host/shop"]\n')
    message = refusal(2, "serve", "--config", str(file))
    assert f"{file}: prot: no setting; did you mean port?" in message
    assert f"{file}: mongodb-uri: ***, expected a text" in message


@pytest.mark.parametrize("command", representatives(["serve", "record", "schema"], "serve"))
def test_a_missing_model_is_named(tmp_path: Path, command: str) -> None:
    """The error has the page on models, and the option for the path."""
    path = tmp_path / "none.graphql"
    message = refusal(2, command, "--schema", str(path))
    assert f"model: {path}" in message
    assert "docs/reference/model.md" in message
    assert "--schema" in message


def test_all_errors_of_a_model_are_reported(tmp_path: Path) -> None:
    """Each has its line; there is no connection before."""
    path = tmp_path / "schema.graphql"
    path.write_text(TEN_MISTAKES)
    message = refusal(
        1, "serve", "--schema", str(path), "--mongodb-uri", "mongodb://127.0.0.1:1/shop"
    )
    lines = [line for line in message.splitlines() if line.startswith(f"{path}:")]
    assert len(lines) >= 10, message
    for name in ("Strin", "Size", "twice", "__odd", "Maker", "products", "nope", "indx"):
        assert name in message
