"""Pages for browsers: the front page, GraphiQL, and their assets.

The pages are built from `web/` into `gql/static` when revstream is installed, and are served
unchanged, without templates or other servers. If they were not built, the API works all the same,
and the pages explain how to build them.

Source: docs/decisions/0002, which also explains each clause of the content security policy.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from revstream.gql.endpoint.example_queries import Example

__all__ = ["Handle", "graphiql_response", "pages_routes"]

Handle = Callable[[Request], Awaitable[Response]]

# The distribution is installed unpacked, so the folder exists on disk.
STATIC = Path(__file__).parents[1] / "static"

NOT_BUILT = """\
The pages of this revstream were not built. The API at /graphql works without them.

To build them, install revstream again from its source, with an npm registry in reach:

    pip install -e .

The build brings its own node and npm, and npm's own settings hold (registry, proxy, certificates).
"""


def _headers(**overrides: str) -> Mapping[str, str]:
    directives = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "font-src": "'self'",
        # The same origin's ws: and wss: are 'self' too, in every browser since 2022.
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    directives |= {name.replace("_", "-"): value for name, value in overrides.items()}
    return {
        "content-security-policy": "; ".join(f"{name} {directives[name]}" for name in directives),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }


HEADERS = _headers()
# Monaco writes <style> elements and style attributes as it draws, runs its language services in
# workers, and GraphiQL's style sheet carries its fonts and some of Monaco's icons as data: URLs.
GRAPHIQL_HEADERS = _headers(
    style_src="'self' 'unsafe-inline'",
    font_src="'self' data:",
    img_src="'self' data:",
    worker_src="'self'",
)


def graphiql_response() -> Response:
    """Return GraphiQL as a page: for a `GET /graphql` that prefers HTML and has no query."""
    response = _page("graphiql.html", GRAPHIQL_HEADERS)
    # The same address answers queries: a cache must not give one for the other.
    response.headers["vary"] = "Accept"
    return response


def pages_routes(
    examples: Callable[[], Iterable[Example]] = tuple,
    guard: Callable[[Handle], Handle] = lambda handle: handle,
) -> list[Route | Mount]:
    """Create the routes `/` (front page), `/static` (built files), and `/examples.json`.

    Args:
        examples: called for each `/examples.json`: the queries that GraphiQL opens as tabs, the
            first one in front. If there are none, GraphiQL opens a query that works for any schema.
        guard: wraps handlers that reveal the schema, as the examples do.
    """

    async def front_page(request: Request) -> Response:
        return _page("index.html", HEADERS)

    async def examples_json(request: Request) -> Response:
        return JSONResponse(
            [asdict(each) for each in examples()],
            headers={"cache-control": "no-store", "x-content-type-options": "nosniff"},
        )

    return [
        Route("/", front_page),
        Route("/examples.json", guard(examples_json)),
        Mount("/static", _Assets(directory=STATIC, check_dir=False), name="static"),
    ]


def _page(name: str, headers: Mapping[str, str]) -> Response:
    path = STATIC / name
    if not path.is_file():
        return PlainTextResponse(
            NOT_BUILT, status_code=503, headers={**headers, "cache-control": "no-store"}
        )
    # A page names the hashed files of one build: browsers revalidate it each time, so that they
    # see an upgrade at once.
    return FileResponse(
        path, media_type="text/html", headers={**headers, "cache-control": "no-cache"}
    )


class _Assets(StaticFiles):
    """Static files of `gql/static`; browsers cache names with a content hash without limit."""

    async def check_config(self) -> None:
        """Check nothing: a missing folder has no files, which is 404 and not an error."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        # A worker obeys the policy of its own file, not that of the page that started it.
        response.headers.update(GRAPHIQL_HEADERS)
        hashed = Path(full_path).parent.name == "assets"
        response.headers["cache-control"] = (
            "public, max-age=31536000, immutable" if hashed else "no-cache"
        )
        return response
