"""API keys: hashed keys in a file, and their principals."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from revstream.gql.auth.api_keys import ApiKeys
from revstream.resolvers.errors import Unauthenticated

KEY = "4f1c8b5f0d"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
ENTRY = f'[[keys]]\nsha256 = "{DIGEST}"\nprincipal = "importer"\n'


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_key_is_a_principal(tmp_path: Path) -> None:
    """It has roles and claims; it is the same object each time, so that caches can refer to it."""
    more = 'roles = ["writer"]\nclaims = { tenant = "acme" }\n'
    keys = ApiKeys(write_file(tmp_path / "keys.toml", ENTRY + more))
    found = keys.principal(KEY)
    assert (found.name, found.roles, found.claim("tenant")) == ("importer", {"writer"}, "acme")
    assert keys.principal(KEY) is found
    for wrong in ("", KEY[:-1], DIGEST):
        with pytest.raises(Unauthenticated):
            keys.principal(wrong)


def test_a_removed_key_is_refused(tmp_path: Path) -> None:
    """The file is read at most once a second; an invalid file changes nothing."""
    now = 0.0
    path = write_file(tmp_path / "keys.toml", ENTRY)
    keys = ApiKeys(path, clock=lambda: now)
    write_file(path, "not TOML")
    now += 2
    assert keys.principal(KEY)
    write_file(path, "keys = []")
    assert keys.principal(KEY)
    now += 2
    with pytest.raises(Unauthenticated):
        keys.principal(KEY)


def test_an_entry_that_changes_is_another_key(tmp_path: Path) -> None:
    """Sessions opened with the old key end; those of unchanged keys continue."""
    now = 0.0
    other = f'[[keys]]\nsha256 = "{"0" * 64}"\nprincipal = "reader"\n'
    path = write_file(tmp_path / "keys.toml", ENTRY)
    keys = ApiKeys(path, clock=lambda: now)
    changes: list[bool] = []
    found = keys.principal(KEY)
    keys.changed = lambda: changes.append(keys.holds(found))
    assert keys.holds(found)
    for text in (other + ENTRY, f'{ENTRY}roles = ["writer"]\n'):
        write_file(path, text)
        now += 2
        keys.principal(KEY)
    assert changes == [True, False]
    assert keys.principal(KEY) is not found
    assert keys.holds(keys.principal(KEY))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not TOML",
        "keys = 5",
        '[[keys]]\nprincipal = "x"\n',
        ENTRY + 'role = ["x"]\n',
        ENTRY + 'roles = "x"\n',
        ENTRY + "claims = 1\n",
        f'[[keys]]\nsha256 = "{DIGEST}"\n',
        ENTRY + ENTRY,
        ENTRY.replace("importer", "revstream:copier"),
    ],
)
def test_an_invalid_file_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    """The error has its path."""
    with pytest.raises(ValueError, match=r"keys\.toml"):
        ApiKeys(write_file(tmp_path / "keys.toml", text))
