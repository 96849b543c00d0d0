"""Routes of the pages, over a folder that the test fills as a build would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from revstream.gql.endpoint import pages
from revstream.gql.endpoint.example_queries import Example


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a built `gql/static`."""
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>front</title>")
    (folder / "graphiql.html").write_text("<title>graphiql</title>")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "index-abc123.js").write_text("export {}")
    monkeypatch.setattr(pages, "STATIC", folder)
    return folder


@pytest.fixture
def not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a `gql` that was installed without its pages."""
    monkeypatch.setattr(pages, "STATIC", tmp_path / "static")


@pytest.fixture
def client() -> Iterator[TestClient]:
    """Provide a client of the pages' routes, and of GraphiQL at the gateway's path."""

    async def graphiql(request: Request) -> Response:
        return pages.graphiql_response()

    routes = pages.pages_routes(lambda: [Example("Now", "query Now { resumeToken }")])
    with TestClient(Starlette(routes=[Route("/graphql", graphiql), *routes])) as client:
        yield client


def policy_of(response: object) -> dict[str, str]:
    text = response.headers["content-security-policy"]  # type: ignore[attr-defined]
    return dict(clause.split(" ", 1) for clause in text.split("; "))


@pytest.mark.usefixtures("static")
def test_the_front_page_is_served_at_the_root(client: TestClient) -> None:
    """`/` is the built index.html, which browsers revalidate each time."""
    response = client.get("/")
    assert response.status_code == 200
    assert response.text == "<title>front</title>"
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("static")
def test_graphiql_is_not_cached_in_place_of_a_response(client: TestClient) -> None:
    """GraphiQL has the URL of the API, so it varies by `Accept`."""
    response = client.get("/graphql")
    assert response.text == "<title>graphiql</title>"
    assert response.headers["vary"] == "Accept"
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("static")
def test_a_hashed_file_may_be_cached_forever(client: TestClient) -> None:
    """A file in assets/ changes its name with its content."""
    response = client.get("/static/assets/index-abc123.js")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in response.headers["content-type"]


@pytest.mark.usefixtures("static")
def test_a_file_without_a_hash_is_revalidated(client: TestClient) -> None:
    """A file that keeps its name may change its content."""
    assert client.get("/static/favicon.svg").headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("static")
@pytest.mark.parametrize("path", ["/", "/graphql", "/static/assets/index-abc123.js"])
def test_each_response_has_a_content_security_policy(client: TestClient, path: str) -> None:
    """It allows no foreign script, server or frame, and no guessing of types."""
    response = client.get(path)
    policy = policy_of(response)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


@pytest.mark.usefixtures("static")
def test_only_graphiql_may_use_inline_styles_and_workers(client: TestClient) -> None:
    """Monaco needs them; the front page does not."""
    front, graphiql = policy_of(client.get("/")), policy_of(client.get("/graphql"))
    assert front["style-src"] == "'self'"
    assert "worker-src" not in front
    assert graphiql["style-src"] == "'self' 'unsafe-inline'"
    assert graphiql["worker-src"] == "'self'"


@pytest.mark.usefixtures("static")
def test_an_unknown_file_is_not_found(client: TestClient) -> None:
    """A name that is not in the build is 404."""
    assert client.get("/static/assets/other.js").status_code == 404


def test_a_path_cannot_leave_the_folder(client: TestClient, static: Path) -> None:
    """`..`, encoded or not, reaches no file outside `gql/static`."""
    (static.parent / "secret").write_text("secret")
    assert client.get("/static/%2e%2e/secret").status_code == 404
    assert client.get("/static/..%2fsecret").status_code == 404


@pytest.mark.usefixtures("static")
def test_the_examples_are_listed(client: TestClient) -> None:
    """GraphiQL fetches the queries that it opens as tabs."""
    response = client.get("/examples.json")
    assert response.json() == [{"name": "Now", "query": "query Now { resumeToken }"}]
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.usefixtures("not_built")
@pytest.mark.parametrize("path", ["/", "/graphql"])
def test_missing_pages_are_an_error_with_the_build_command(client: TestClient, path: str) -> None:
    """The response is plain text; no exception is raised."""
    response = client.get(path)
    assert response.status_code == 503
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert "pip install -e ." in response.text


@pytest.mark.usefixtures("not_built")
def test_files_that_were_not_built_are_not_found(client: TestClient) -> None:
    """Without the folder, each file is 404."""
    assert client.get("/static/favicon.svg").status_code == 404
