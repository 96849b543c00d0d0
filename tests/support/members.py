"""Undocumented members of libraries, looked up by name."""

from __future__ import annotations

from importlib.metadata import version

__all__ = ["check_members"]


def check_members(library: str, owner: object, *names: str) -> None:
    """Fail with the library's version and the names of the members that `owner` does not have."""
    missing = [name for name in names if not hasattr(owner, name)]
    kind = getattr(owner, "__name__", type(owner).__name__)
    assert not missing, f"{library} {version(library)}: {kind} has no {', '.join(missing)}"
