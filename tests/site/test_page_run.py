"""The convention of executable pages: what a page may say, and what is found wrong with it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import ServedShop
from tests.site.page import PageError, read_page
from tests.site.page_run import run_page

RIGHT = """
---
mongodb: true
ports: [9000]
---
# A page

```graphql title="shop/schema.graphql"
type Product @collection(name: "products") { id: ID! name: String! }
```

1.  Start it:

    <!-- run: background ready=http://127.0.0.1:8000/readyz -->
    ```sh
    cd shop
    revstream serve --mongodb-uri "mongodb://127.0.0.1:27017/shop?replicaSet=rs0"
    ```
    ```text
    …serving…address=http://127.0.0.1:8000…
    ```

```sh
cd shop
export NAME=Mug
ls
```
```text
schema.graphql
```

The session is kept:

```sh
test "$(basename "$PWD")" = shop
echo "$NAME at 127.0.0.1:9000"
```
```text
Mug at 127.0.0.1:9000
```
```graphql
mutation New($name: String!) {
  createProduct(id: "p1", document: { name: $name }) {
    ... on ProductWritten { version resumeToken product { id name } }
  }
}
```
```json title="variables"
{ "name": "Mug" }
```
```json
{
  "data": {
    "createProduct": { "version": 1, "resumeToken": "…", "product": { "id": "p1", "…": "…" } }
  }
}
```

The variable is the token of the answer above:

```graphql
query Then($resumeToken: ResumeToken!) {
  productVersion(id: "p1", asOf: { token: $resumeToken }) { number: version operation }
}
```
```json title="variables"
{ "resumeToken": "…" }
```
```json
{ "data": { "productVersion": { "number": 1, "operation": "INSERT" } } }
```
```graphql
subscription { productChanges { operation product { name } resumeToken } }
```
```sh
curl --silent --json '{"query": "mutation { deleteProduct(id: \\"p1\\") { __typename } }"}' \\
  http://127.0.0.1:8000/graphql
```
```json
{ "data": { "deleteProduct": { "__typename": "ProductWritten" } } }
```
```json title="event"
{ "data": { "productChanges": { "operation": "DELETE", "product": null, "resumeToken": "…" } } }
```
<!-- run: eventually -->
```graphql
{ productVersions(first: 5) { nodes { operation } } }
```
```json
{ "data": { "productVersions": { "nodes": [{ "operation": "DELETE" }, "…"] } } }
```

<!-- run: stop -->

<!-- run: fails -->
```sh
curl --silent --show-error http://127.0.0.1:8000/livez
```
```text
curl: … 127.0.0.1 … 8000 …
```

<!-- run: background ready=tcp://127.0.0.1:9000 -->
```sh
exec python -m http.server --bind 127.0.0.1 9000
```
<!-- run: eventually -->
```sh
echo again >> times
test "$(wc -l < times)" -gt 2
```
<!-- run: skip needs a cluster -->
```sh
kubectl apply -f shop.yaml
```
```text
deployment.apps/shop created
```
```mermaid
flowchart LR
```
"""


@pytest.fixture
def write(tmp_path: Path) -> object:
    """Return a function that writes a page and parses it."""

    def parse(text: str) -> object:
        path = tmp_path / "page.md"
        path.write_text(text.lstrip())
        return read_page(path)

    return parse


def test_a_right_page_passes(write) -> None:
    """All that the convention has: files, sessions, background, outputs, answers, events."""
    run_page(write(RIGHT))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Text.\n\n```sh\nfalse\necho no\n```\n", r":3: shell: exit code 1, expected 0; its"),
        (
            "```sh\necho actual\n```\n```text\nexpected …\n```",
            r":1: shell: output: expected in line 4 and after: expected …\nActual output:\nactual",
        ),
        (
            "```sh\nprintf 'b\\na'\n```\n```text\na\nb\n```",
            r":1: shell: output: expected in line 4 and after: b\n",
        ),
        (
            '```sh\necho \'{"a": [1, 2]}\'\n```\n```json\n{"a": [1]}\n```',
            r":1: shell: answer\.a: 2 items, expected 1\n",
        ),
        ("<!-- run: fails -->\n```sh\ntrue\n```", r":2: fails: exit code 0, expected another"),
        (
            "<!-- run: background ready=http://127.0.0.1:8000/ -->\n```sh\necho why\n```",
            r":2: background: has ended, expected to run; its output:\nwhy",
        ),
        ("```sh\ntrue\n```\n```json title=\"event\"\n{}\n```", ":4: event: no subscription"),
        ("<!-- run: stop -->", ":1: stop: nothing runs in the background"),
    ],
)  # fmt: skip
def test_a_wrong_page_is_refused_with_its_line(write, text: str, fault: str) -> None:
    """The message has page, line, what is expected and what is the case."""
    with pytest.raises(PageError, match=f"^page.md{fault}"):
        run_page(write(text))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            '```graphql\n{ product(id: "p000") { name } }\n```\n'
            '```json\n{ "data": { "product": { "name": "Cup" } } }\n```',
            r':1: graphql: answer\.data\.product\.name: "Mug, sand", expected "Cup"\nActual',
        ),
        ("```graphql\n{ nothing }\n```", r":1: graphql: errors, expected none:\n(.|\n)*nothing"),
        (
            '```graphql\n{ nothing }\n```\n```json\n{ "data": null }\n```',
            r":1: graphql: answer\.data: missing",
        ),
        (
            "```graphql\nquery Q($some: ID!) { product(id: $some) { id } }\n```\n"
            '```json title="variables"\n{ "some": "…" }\n```',
            ":1: graphql: variable some: no answer above has such a field",
        ),
    ],
)
def test_a_wrong_answer_is_refused(write, gateway: ServedShop, text: str, fault: str) -> None:
    """A gateway that a test has started serves the page."""
    port = urlsplit(gateway.url).port
    with pytest.raises(PageError, match="^page.md" + fault):
        run_page(write(text), served={8000: port})


def test_an_error_that_the_page_shows_is_right(write, gateway: ServedShop) -> None:
    """A page may show an error, with as much of its message as it wants."""
    error = '{ "errors": [{ "message": "…nothing…", "…": "…" }], "…": "…" }'
    text = f"```graphql\n{{ nothing }}\n```\n```json\n{error}\n```"
    run_page(write(text), served={8000: urlsplit(gateway.url).port})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```ruby\nputs 1\n```", ":1: language ruby: not run"),
        ("```\nls\n```", ":1: language none: not run"),
        ("```text\nout\n```", ":1: text: expected directly after a sh block"),
        ("```sh\nls\n```\n```text\na\n```\n```text\nb\n```", ":7: text: expected directly after"),
        ("```json\n{}\n```", ":1: json: expected directly after a sh or graphql block"),
        ('```sh\nls\n```\n```json title="variables"\n{}\n```', ":4: variables: expected directly"),
        ("<!-- run: skip -->\n```sh\nls\n```", ":2: skip: no reason"),
        ("<!-- run: sometimes -->\n```sh\nls\n```", ":1: run: sometimes, expected one of"),
        ("<!-- run: fails -->\nText\n```sh\nls\n```", ":1: run: no block below it"),
        ("<!-- run: background -->\n```sh\nls\n```", ":2: background: no ready=ADDRESS"),
        ("```sh\nls", ":1: block: not closed"),
        ("```graphql\n{ a\n```", ":1: graphql: Syntax Error"),
        ("```graphql\nquery A { a }\nquery B { b }\n```", ":1: graphql: expected one operation"),
        ("---\nmongo: true\n---\n", r":1: front matter: \['mongo'\], known"),
    ],
)
def test_a_page_that_breaks_the_convention_is_refused(write, text: str, fault: str) -> None:
    """A misspelt directive would otherwise be a block that nobody runs."""
    with pytest.raises(PageError, match=f"^page.md{fault}"):
        write(text)


def test_a_page_runs_in_a_folder_and_an_environment_of_its_own(
    write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test's environment does not change what a reader would see."""
    monkeypatch.setenv("REVSTREAM_PORT", "1")
    commands = 'test -z "$(ls -A)"\necho port=$REVSTREAM_PORT\nrevstream --help'
    run_page(write(f"```sh\n{commands}\n```\n```text\nport=\nUsage: revstream …\n```"))
