"""Settings in a TOML file, as the command reads them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from revstream.gql.cli.main import cli
from revstream.gql.runtime.configuration.settings import Settings


def run(file: Path, *arguments: str, **environ: str) -> Result:
    """Run `revstream config` with the file."""
    return CliRunner().invoke(cli, ["config", "--config", str(file), *arguments], env=environ)


def effective(file: Path, *arguments: str, **environ: str) -> dict[str, Any]:
    """Return value and source of each setting."""
    done = run(file, "--json", *arguments, **environ)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "revstream.toml"
    path.write_text(
        'port = 9000\nmax-cost = 7\nlease_s = 5\nrelay = true\nlog-level = "error"\n'
        'schema = "shop.graphql"\nhost = "0.0.0.0"\n'
    )
    return path


def test_an_option_precedes_a_variable_a_variable_the_file_and_the_file_a_default(
    file: Path,
) -> None:
    """Keys are the options' names, with - or _; each value has its source beside it."""
    found = effective(file, "--port", "1", REVSTREAM_PORT="2", REVSTREAM_MAX_COST="3")
    assert found["port"] == {"value": 1, "source": "option --port"}
    assert found["max-cost"] == {"value": 3, "source": "variable REVSTREAM_MAX_COST"}
    assert found["lease-s"] == {"value": 5.0, "source": f"file {file}"}
    assert found["relay"] == {"value": True, "source": f"file {file}"}
    assert found["max-depth"] == {"value": 20, "source": "default"}
    assert effective(file, "--no-relay")["relay"]["value"] is False


def test_the_file_may_be_named_by_a_variable(file: Path) -> None:
    """A container has one."""
    done = CliRunner().invoke(cli, ["config", "--json"], env={"REVSTREAM_CONFIG": str(file)})
    assert json.loads(done.output)["port"]["value"] == 9000


def test_a_relative_path_is_relative_to_the_file(file: Path, tmp_path: Path) -> None:
    """The working directory of a service is rarely the file's."""
    file.write_text('schema = "shop.graphql"\nembedded = "/data"\njwt-keys = "https://id/keys"\n')
    found = effective(file)
    assert found["schema"]["value"] == str(tmp_path / "shop.graphql")
    assert found["embedded"]["value"] == "/data"
    assert found["jwt-keys"]["value"] == "https://id/keys"


def test_all_problems_are_reported_at_once(file: Path) -> None:
    """Each with the file, the key, the actual value, and what is expected or was meant."""
    file.write_text(
        'prot = 80\nport = "80"\nheartbeat-s = 0\nrelay = 1\nlog-level = "loud"\ndriver = 3\n'
        "schema = true\nlease-s = 5\nlease_s = 6\nsink-secrets = 5\nunlike_any_other_name = 1\n"
        'config = "x"\nallowed-hosts = ["a", 5]\n[server]\nport = 1\n'
        "[limits]\nhost = 'b'\nmax_costs = 1\nmax-cost = '1'\n"
    )
    done = run(file)
    assert done.exit_code == 2
    lines = [each.removeprefix("Error: ") for each in done.output.splitlines() if str(file) in each]
    assert lines == [
        f"{file}: {each}"
        for each in (
            "prot: no setting; did you mean port?",
            'port: "80", expected a whole number',
            "heartbeat-s: 0.0 is not in the range x>0",
            "relay: 1, expected true or false",
            'log-level: "loud", expected debug or info or warning or error',
            "driver: 3, expected motor or pymongo",
            "schema: true, expected a path, as text",
            "lease_s: twice, expected one; remove the other",
            "sink-secrets: ***, expected a text, or a list of them",
            "unlike_any_other_name: no setting; remove it",
            "config: a file cannot name another; set it with --config or REVSTREAM_CONFIG",
            "allowed-hosts: 5, expected texts without a comma in the list",
            "server: no setting; did you mean driver?",
            "[limits] host: not of this table; move it to [http] or to the top",
            "[limits] max_costs: no setting; did you mean max-cost?",
            '[limits] max-cost: "1", expected a whole number',
        )
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"port =", "no valid TOML: Invalid value (at end"),
        (b"\xff", "text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """The message has the path and the reason."""
    path = tmp_path / "revstream.toml"
    if content is not None:
        path.write_bytes(content)
    done = run(path)
    assert done.exit_code == 2
    assert f"{path}: " in done.output
    assert message in done.output


def test_every_setting_can_be_in_the_file(tmp_path: Path, file: Path) -> None:
    """The TOML that the command prints is such a file, with the same meaning."""
    printed = run(file, REVSTREAM_JWT_ISSUER="me").output
    again = tmp_path / "again.toml"
    again.write_text("\n".join(each for each in printed.splitlines() if "config =" not in each))
    found = effective(again)
    assert tomllib.loads(printed)["access"]["jwt-issuer"] == "me"
    before = effective(file, REVSTREAM_JWT_ISSUER="me")
    differ = {name for name in before if before[name]["value"] != found[name]["value"]}
    assert differ == {"config"}
    assert len(before) == len(fields(Settings))


def test_an_option_precedes_an_alternative_of_the_file(file: Path, tmp_path: Path) -> None:
    """A URI on the command line is used where the file names a file that holds one."""
    (tmp_path / "uri").write_text("mongodb://file/shop")
    file.write_text('mongodb-uri-file = "uri"\n')
    found = effective(file, "--mongodb-uri", "mongodb://given/shop")
    assert found["mongodb-uri-file"] == {"value": None, "source": "default"}
    assert found["mongodb-uri"]["value"] == "mongodb://given/shop"
    assert effective(file)["mongodb-uri-file"]["value"] == str(tmp_path / "uri")


def test_settings_may_be_in_the_table_of_their_group_and_lists_be_lists(file: Path) -> None:
    """The groups are those of the reference page."""
    file.write_text(
        'port = 1\n[http]\nhost = "0.0.0.0"\nallowed-origins = ["https://a", "https://b"]\n'
        '[listeners]\nlisteners = "mine:Listener"\n[log]\nlog-json = true\n'
    )
    found = effective(file)
    assert found["port"]["value"] == 1
    assert found["host"]["value"] == "0.0.0.0"
    assert found["allowed-origins"]["value"] == "https://a,https://b"
    assert found["listeners"]["value"] == "mine:Listener"
    assert found["log-json"]["value"] is True


def test_secrets_are_not_printed(file: Path) -> None:
    """Neither a password in a URI, nor what signs deliveries, nor keys that were pasted."""
    file.write_text(
        'mongodb-uri = "mongodb://joe:s3cret@db/shop?tlsCertificateKeyFilePassword=s3cret"\n'
        "sink-secrets = 'whsec_s3cret'\njwt-keys = '{\"keys\": \"s3cret\"}'\n"
    )
    done = run(file)
    assert done.exit_code == 0
    assert "s3cret" not in done.output
    assert 'mongodb-uri = "mongodb://***@db/shop?…"' in done.output


def test_settings_of_another_command_in_the_file_are_checked_and_not_used(file: Path) -> None:
    """One file is for all commands of a deployment."""
    (file.parent / "shop.graphql").write_text(
        'type Thing @collection(name: "things") { id: ID! name: String }'
    )
    done = CliRunner().invoke(cli, ["schema", "--config", str(file)])
    assert done.exit_code == 0, done.output
    assert "type Thing implements" in done.output
    file.write_text("prot = 1")
    assert CliRunner().invoke(cli, ["schema", "--config", str(file)]).exit_code == 2
