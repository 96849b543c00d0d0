"""Consistency of the repository: the README, the schema, the pages, the names."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from graphql import build_schema as parse_schema
from graphql.utilities import find_breaking_changes

from revstream.gql.cli.main import cli
from revstream.gql.observability.error_table import TABLE
from revstream.gql.runtime.configuration.settings import PREFIX, Settings
from revstream.gql.schema import build_schema, print_sdl
from revstream.model.compiler.loader import read_model
from revstream.model.compiler.parsing.directive_definitions import LANGUAGE
from revstream.streams.core.errors import GatewayError, InternalError
from tests.support.snapshots import SNAPSHOTS

ROOT = Path(__file__).parents[1]

DEVELOPERS = ("CONTRIBUTING.md", "docs/explanation/architecture.md", "docs/contributing/adding.md")


def test_every_error_has_a_rule() -> None:
    """An error class that is missing in the table would be masked by accident."""

    def below(kind: type[Exception]) -> set[type[Exception]]:
        return {kind, *(each for child in kind.__subclasses__() for each in below(child))}

    ours = {each for each in below(GatewayError) if each.__module__.split(".")[0] != "tests"}
    missing = {each for each in ours if each not in TABLE and not issubclass(each, InternalError)}
    assert missing == set()


def test_environment_names_are_the_options_names() -> None:
    """A setting has one name, which docs/reference/configuration.md shows as both."""
    names = {each.name: PREFIX + each.name.upper() for each in dataclasses.fields(Settings)}
    found = {each.name: each.envvar for each in cli.commands["serve"].params}
    assert {name: found[name] for name in names} == names


def test_the_example_models_sdl_can_be_parsed_and_does_not_break_the_snapshot() -> None:
    """A generated client stays valid: tests/snapshots/schema is the SDL served before."""
    model = read_model((ROOT / "schema.graphql").read_text(encoding="utf-8"))
    parsed = parse_schema(print_sdl(build_schema(model)))
    before = parse_schema((SNAPSHOTS / "schema" / "shop.graphql").read_text(encoding="utf-8"))
    assert find_breaking_changes(before, parsed) == []
    assert find_breaking_changes(parsed, before) == []
    for entity in model.entities:
        assert entity.singular in parsed.query_type.fields
        assert f"{entity.plural}AsOf" in parsed.query_type.fields
        assert f"{entity.singular}Changes" in parsed.subscription_type.fields


def test_the_readme_is_short() -> None:
    """It says what revstream is and leads to the pages; facts have their place there."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert {"make demo", "make test"} <= {line.partition("#")[0].strip() for line in lines}


def test_links_within_the_documentation_are_valid() -> None:
    """Every relative link names a file that exists and, after a `#`, a heading of that file."""
    for page in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))):
        for target, anchor in re.findall(
            r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")
        ):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in _anchors(found), f"{page.name}: {target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_collection_of_revstream_is_on_the_page_of_its_footprint() -> None:
    """The page has all of them, and no others."""
    page = (ROOT / "docs" / "reference" / "footprint.md").read_text(encoding="utf-8")
    named = set()
    # Names in `gql` are keys of ASGI's scope.
    for package in ("resolvers", "streams"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            named |= set(re.findall(r'"(revstream\.[a-zA-Z]+)"', text))
            named |= set(re.findall(r'f"\{\w*\.?collection\}\.([a-z]+)"', text))
    assert {"versions", "revstream.leases"} <= named
    assert {each for each in named if each not in page} == set()
    assert set(re.findall(r"`(revstream\.\w+)`", page)) - named == set()


def test_decisions_that_the_code_cites_exist() -> None:
    """A `Source: docs/decisions/0004` must name an existing page."""
    pages = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    for package in ("gql", "resolvers", "streams", "model"):
        for path in (ROOT / package).rglob("*.py"):
            cited = re.findall(r"docs/decisions/(\d{4})", path.read_text(encoding="utf-8"))
            assert set(cited) <= pages, f"{path}: {set(cited) - pages}"


def test_decisions_have_one_form_and_a_row_in_the_index() -> None:
    """Each page has its head, the four sections in order, each with text, and an index row."""
    folder = ROOT / "docs" / "decisions"
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    index = (folder / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\[\d{4}\]\([^)]*\)) \| (.+ \| .+) \|$", index, re.M))
    expected = {}
    for path in pages:
        found = _DECISION.fullmatch(path.read_text(encoding="utf-8"))
        assert found is not None, (
            f"{path.name}: head or sections, expected docs/decisions/README.md"
        )
        number, title, status = found["number"], found["title"], found["status"]
        assert path.name.startswith(f"{number}-"), f"{path.name}: number {number} in the title"
        expected[f"[{number}]({path.name})"] = f"{title} | {status}"
        for superseded in filter(None, (found["supersedes"], status.partition("by ")[2])):
            assert list(folder.glob(f"{superseded}-*.md")), f"{path.name}: no page {superseded}"
    assert len(pages) > 40
    assert rows == expected


_DECISION = re.compile(
    r"# (?P<number>\d{4})\. (?P<title>[^\n]+)\n\n"
    r"- Status: (?P<status>accepted(?=\n)|(?:withdrawn|superseded by \d{4})(?=: \S))(?:: [^\n]+)?\n"
    r"- Date: \d{4}-\d{2}-\d{2}\n"
    r"(?:- Supersedes: (?P<supersedes>\d{4})\n)?"
    + "".join(
        rf"\n## {section}\n\n(?!#)\S(?:(?!\n## )[\s\S])*\n"
        for section in ("Context", "Decision", "Consequences", "Alternatives")
    )
)
"""A page of docs/decisions; it has no other sections."""


def test_modules_that_only_some_deployments_need_are_imported_on_demand() -> None:
    """Clients for HTTP and cryptography take an eighth of a start, and 18 MB."""
    asked = "import sys, revstream.gql.cli.main; "
    asked += "print(*{'aiohttp', 'cryptography', 'jwt'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True)
    assert (found.stdout.strip(), found.stderr) == ("", "")


def test_the_glossary_is_sorted_and_has_only_names_of_the_code() -> None:
    """A renamed class is renamed on the page, too, and each term has one entry."""
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^## (.+)$", page, re.M)
    assert terms == sorted(set(terms), key=str.lower)
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("gql", "resolvers", "streams", "model")
        for path in (ROOT / package).rglob("*.py")
    )
    defined = set(re.findall(r"^(?:class|def|async def) (\w+)", code, re.M))
    named = {
        name
        for line in re.findall(r"^Python (.*?)(?: · |$)", page, re.M)
        for name in re.findall(r"`(\w+)`", line)
    }
    assert {"Lease", "Recorder"} <= named
    assert named - defined == set()
    schema = LANGUAGE + print_sdl(
        build_schema(read_model((ROOT / "schema.graphql").read_text(encoding="utf-8")))
    )
    words = set(re.findall(r"@?\w+", schema))
    api = {
        name
        for line in re.findall(r"SDL (?:\(model\) )?((?:`[^`]+`(?:, )?)+)", page)
        for name in re.findall(r"`([^`]+)`", line)
    }
    assert {"ResumeToken", "@sink"} <= api
    assert api - words == set()


def test_class_names_have_one_meaning() -> None:
    """A public class name stands for one class in all packages."""
    places: dict[str, list[str]] = {}
    for package in ("gql", "resolvers", "streams", "model"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_packages_are_small() -> None:
    """A folder has at most 14 entries, and a module at most 400 lines."""
    for package in ("gql", "resolvers", "streams", "model"):
        for path in sorted((ROOT / package).rglob("*.py")):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
            entries = [each for each in path.parent.iterdir() if each.name != "__pycache__"]
            assert len(entries) <= 14, f"{path.parent}: {len(entries)} entries"


def test_paths_on_the_pages_for_developers_exist() -> None:
    """A file, folder or module that is moved is moved on these pages, too."""
    files = [f"/{each.relative_to(ROOT).as_posix()}" for each in _python_files()]
    tops = "gql|resolvers|streams|model|src|tests|docs|benchmarks|tools|web|examples"
    for page in DEVELOPERS:
        text = (ROOT / page).read_text(encoding="utf-8")
        named = re.findall(rf"(?<![\w/.<])((?:{tops})/[\w/.-]*\w|[\w/]+\.py)\b", text)
        modules = re.findall(
            r"\brevstream\.((?:gql|resolvers|streams|model|listeners)[\w.]*)", text
        )
        named += [f"src/revstream/{each.rstrip('.').replace('.', '/')}" for each in modules]
        assert named, page
        missing = {
            each
            for each in named
            if not (ROOT / each).exists()
            and not (ROOT / f"{each}.py").exists()
            and not any(file.endswith(f"/{each}") for file in files)
        }
        assert missing == set(), page


def test_names_on_the_page_about_additions_are_in_the_code() -> None:
    """A class or a table that is renamed is renamed on the page, too."""
    page = (ROOT / "docs" / "contributing" / "adding.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(_?[A-Z]\w+)`", page))
    code = "\n".join(each.read_text(encoding="utf-8") for each in _python_files())
    defined = set(re.findall(r"^(?:class |def )?(\w+)", code, re.M))
    assert {"Scalar", "Settings"} <= named
    assert named - defined == set()


def test_the_page_of_packages_has_them_in_the_order_of_the_contracts() -> None:
    """pyproject.toml has the allowed imports, and the page shows them."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    for contract in tools["importlinter"]["contracts"]:
        package = contract["name"]
        if contract["type"] != "layers" or package not in ("gql", "resolvers", "streams", "model"):
            continue
        assert _drawn(page, package) == contract["layers"]
        listed = re.findall(rf"`{package}/(\w+)(?:\.py)?`", _tables(page, package))
        assert list(dict.fromkeys(listed)) == [
            each for layer in contract["layers"] for each in layer.split(" | ")
        ]


def _drawn(page: str, package: str) -> list[str]:
    box = re.search(rf"subgraph {package}\[.*?\n  end\n", page, re.S)
    assert box is not None
    return [each.replace(" · ", " | ") for each in re.findall(r'^    \w+\["(.*)"\]$', box[0], re.M)]


def _tables(page: str, package: str) -> str:
    """Return the first cells of the package's table."""
    part = re.search(rf"^### `{package}/`.*?\n(?:##|\Z)", page, re.S | re.M)
    assert part is not None
    return "\n".join(re.findall(r"^\| (.*?) \|", part[0], re.M))


def _python_files() -> list[Path]:
    return [
        path
        for folder in ("gql", "resolvers", "streams", "model", "src", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if "node_modules" not in path.parts
    ]


VAGUE_NAMES = {"of", "made", "told", "again", "behind", "seen"}


_RIDDLE = re.compile(
    r"test_(who|what|those|such|whoever|whatever|nobody|nothing)_"
    r"|test_\w*_(who|whoever|nobody|somebody|told|asked|whatever)(_|$)"
)


def test_function_names_describe_functions() -> None:
    """A participle or a preposition is no name of a function, and a test's is a plain sentence."""
    for path in _python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.name.lstrip("_") not in VAGUE_NAMES, f"{path}:{node.lineno}"
                assert _RIDDLE.match(node.name) is None, f"{path}:{node.lineno}"


_FRAGMENT = re.compile(
    r"(What|Whatever|Of|Those|Who|Whoever|Where|Wherever|When|As|Whether|That|Which|How"
    r"|Nothing|Nobody)\b"
)


def test_docstrings_are_sentences() -> None:
    """A docstring opens with a subject, a verb or a noun, never with a fragment."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in _python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                text = ast.get_docstring(node) or ""
                assert _FRAGMENT.match(text) is None, f"{path}: {text[:60]}"
