"""gql.auth.api_keys: hashed keys in a file, and who they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from revstream.gql.auth.api_keys import ApiKeys
from revstream.resolvers.errors import Unauthenticated

KEY = "4f1c8b5f0d"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
ENTRY = f'[[keys]]\nsha256 = "{DIGEST}"\nprincipal = "importer"\n'


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_key_is_a_principal(tmp_path: Path) -> None:
    """With roles and claims; the same object each time, for what is kept under it."""
    more = 'roles = ["writer"]\nclaims = { tenant = "acme" }\n'
    keys = ApiKeys(written(tmp_path / "keys.toml", ENTRY + more))
    found = keys.principal(KEY)
    assert (found.name, found.roles, found.claim("tenant")) == ("importer", {"writer"}, "acme")
    assert keys.principal(KEY) is found
    for wrong in ("", KEY[:-1], DIGEST):
        with pytest.raises(Unauthenticated):
            keys.principal(wrong)


def test_a_key_that_is_taken_out_is_one_no_longer(tmp_path: Path) -> None:
    """Looked at no more than once a second; a file that does not read changes nothing."""
    now = 0.0
    path = written(tmp_path / "keys.toml", ENTRY)
    keys = ApiKeys(path, clock=lambda: now)
    written(path, "not TOML")
    now += 2
    assert keys.principal(KEY)
    written(path, "keys = []")
    assert keys.principal(KEY)
    now += 2
    with pytest.raises(Unauthenticated):
        keys.principal(KEY)


def test_an_entry_that_changes_is_another_key(tmp_path: Path) -> None:
    """What was opened with the old one is told; that of keys that stay as they were goes on."""
    now = 0.0
    other = f'[[keys]]\nsha256 = "{"0" * 64}"\nprincipal = "reader"\n'
    path = written(tmp_path / "keys.toml", ENTRY)
    keys = ApiKeys(path, clock=lambda: now)
    changes: list[bool] = []
    found = keys.principal(KEY)
    keys.changed = lambda: changes.append(keys.holds(found))
    assert keys.holds(found)
    for text in (other + ENTRY, f'{ENTRY}roles = ["writer"]\n'):
        written(path, text)
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
def test_a_file_that_is_none_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    """With the place of it."""
    with pytest.raises(ValueError, match=r"keys\.toml"):
        ApiKeys(written(tmp_path / "keys.toml", text))
