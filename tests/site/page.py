"""Pages of the documentation, parsed into the steps that a reader goes through.

docs/contributing/documentation.md describes the convention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from graphql import GraphQLError, OperationType, get_operation_ast, parse

__all__ = ["Block", "Page", "PageError", "Step", "read_blocks", "read_page"]

COMMON_PORTS = (8000, 27017)
"""Ports of the gateway and of MongoDB, which each page may use."""

_SHELL = ("sh", "bash")
_KINDS = ("background", "skip", "fails", "eventually", "stop")
_SETTINGS = {"mongodb", "ports", "exhaustive"}
_KNOWN_TO_MKDOCS = {"title", "description", "hide", "search", "icon", "tags"}

_FENCE = re.compile(r"(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<info>.*?)\s*")
_DIRECTIVE = re.compile(r"\s*<!--\s*run:\s*(?P<kind>\S+)\s*(?P<rest>.*?)\s*-->\s*")
_TITLE = re.compile(r'\btitle="([^"]*)"')
_READY = re.compile(r"ready=(\S+)")


class PageError(AssertionError):
    """A page that is not written by the convention, or that does not do what it says."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `line` is that of its fence, `run` the directive above it, and `rest` the
    text after the directive's first word."""

    line: int
    language: str
    title: str | None
    text: str
    run: str | None = None
    rest: str = ""


@dataclass(slots=True)
class Step:
    """A block with the blocks after it that belong to it. The kind is `shell`, `graphql`,
    `subscription`, `event`, `file`, `skip` or `stop`."""

    kind: str
    block: Block
    variables: Block | None = None
    expected: Block | None = None

    @property
    def ready(self) -> str | None:
        """Return the address that answers when the background command is ready."""
        found = _READY.search(self.block.rest)
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Page:
    """A page with its front matter."""

    path: Path
    name: str
    mongodb: bool
    exhaustive: bool
    ports: tuple[int, ...]
    steps: list[Step] = field(repr=False)

    def fault(self, block: Block, message: str) -> PageError:
        """Return an error that names the page and the line."""
        return PageError(f"{self.name}:{block.line}: {message}")


def read_page(path: Path, name: str | None = None) -> Page:
    """Parse a page.

    Raises:
        PageError: It breaks the convention; names the line.
    """
    name = name or path.name
    text = path.read_text(encoding="utf-8")
    matter = _front_matter(text, name)
    unknown = set(matter) - _SETTINGS - _KNOWN_TO_MKDOCS
    if unknown:
        raise PageError(f"{name}:1: front matter: {sorted(unknown)}, known: {sorted(_SETTINGS)}")
    page = Page(
        path=path,
        name=name,
        mongodb=matter.get("mongodb", False),
        exhaustive=matter.get("exhaustive", False),
        ports=tuple(dict.fromkeys((*COMMON_PORTS, *matter.get("ports", ())))),
        steps=[],
    )
    page.steps.extend(_steps(page, read_blocks(path, name)))
    return page


def read_blocks(path: Path, name: str | None = None) -> list[Block]:
    """Parse the fenced blocks of a page, and its `stop`s."""
    return list(_blocks(path.read_text(encoding="utf-8"), name or path.name))


def _front_matter(text: str, name: str) -> dict[str, Any]:
    found = re.match(r"---\n(.*?)\n---\n", text, re.S)
    matter = yaml.safe_load(found[1]) if found else {}
    if not isinstance(matter, dict):
        raise PageError(f"{name}:1: front matter: {type(matter).__name__}, expected a mapping")
    return matter


def _blocks(text: str, name: str) -> Iterator[Block]:
    """Yield fenced blocks, at whatever depth of lists, tabs and admonitions; and `stop`s."""
    lines = iter(enumerate(text.splitlines(), start=1))
    directive: tuple[int, str, str] | None = None
    for number, line in lines:
        if found := _DIRECTIVE.fullmatch(line):
            if found["kind"] not in _KINDS:
                raise PageError(f"{name}:{number}: run: {found['kind']}, expected one of {_KINDS}")
            if found["kind"] == "stop":
                yield Block(number, "", None, "", "stop", found["rest"])
            else:
                directive = number, found["kind"], found["rest"]
        elif found := _FENCE.fullmatch(line):
            _, kind, rest = directive or (0, None, "")
            content = []
            for _, inner in lines:
                if inner.strip().startswith(found["fence"]) and not inner.strip("`~ \t"):
                    break
                content.append(inner.removeprefix(found["indent"]))
            else:
                raise PageError(f"{name}:{number}: block: not closed")
            title = _TITLE.search(found["info"])
            yield Block(
                line=number,
                language=(found["info"].split() or [""])[0],
                title=title[1] if title else None,
                text="\n".join(content) + "\n",
                run=kind,
                rest=rest,
            )
            directive = None
        elif directive and line.strip():
            raise PageError(f"{name}:{directive[0]}: run: no block below it")
    if directive:
        raise PageError(f"{name}:{directive[0]}: run: no block below it")


def _steps(page: Page, blocks: list[Block]) -> list[Step]:
    steps: list[Step] = []
    for block in blocks:
        if block.language == "mermaid":
            continue
        if not _attached(page, steps[-1] if steps else None, block):
            steps.append(_step(page, block))
    for step in steps:
        if step.block.run == "background" and not (step.ready or step.expected):
            raise page.fault(step.block, "background: no ready=ADDRESS, and no output to wait for")
    return steps


def _attached(page: Page, before: Step | None, block: Block) -> bool:
    """Add the block to the step before it, if it is its output, answer or variables."""
    shell = before is not None and (before.kind == "shell" or before.block.language in _SHELL)
    graphql = before is not None and before.block.language == "graphql"
    if block.language == "json" and block.title == "variables":
        if before is None or not graphql or before.expected or before.variables:
            raise page.fault(block, "variables: expected directly after a graphql block")
        before.variables = block
        return True
    text = block.language == "text" and block.title is None
    answer = block.language == "json" and block.title is None
    if not text and not answer:
        return False
    if block.run == "skip" and (before is None or before.expected or not (shell or graphql)):
        return False
    if before is None or before.expected or not (shell or (answer and graphql)):
        where = "a sh block" if text else "a sh or graphql block"
        raise page.fault(block, f"{block.language}: expected directly after {where}")
    if block.run != "skip":
        before.expected = block
    return True


def _step(page: Page, block: Block) -> Step:
    if block.run == "stop":
        return Step("stop", block)
    if block.run == "skip":
        if len(block.rest.split()) < 2:
            raise page.fault(block, "skip: no reason, expected one in plain words")
        return Step("skip", block)
    if block.language == "json" and block.title == "event":
        return Step("event", block)
    if block.title is not None:
        return Step("file", block)
    if block.language in _SHELL:
        return Step("shell", block)
    if block.language == "graphql":
        return Step(_operation(page, block), block)
    raise page.fault(
        block,
        f"language {block.language or 'none'}: not run, expected sh, text, graphql, json, a title "
        "(for a file), or <!-- run: skip REASON --> above it",
    )


def _operation(page: Page, block: Block) -> str:
    try:
        operation = get_operation_ast(parse(block.text))
    except GraphQLError as exc:
        raise page.fault(block, f"graphql: {exc.message}") from None
    if operation is None:
        raise page.fault(block, "graphql: expected one operation, or a title (for a file)")
    subscription = operation.operation is OperationType.SUBSCRIPTION
    return "subscription" if subscription else "graphql"
