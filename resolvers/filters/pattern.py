r"""Regular expressions of filters: a subset without backtracking over groups, made safe for PCRE.

    pattern   alternatives with `|`, at most 200 characters
    atom      a character, `.`, `[a-z]`, `[^a-z]`, `^`, `$`, `( )`,
              `\d \w \s \D \W \S \b`
    repeat    `?`, `*`, `+`, `{2}`, `{2,}`, `{2,5}` of one character or class; `*` is `{0,1000}`
              `?`, `{2}` and `{2,5}` of a group that has no repeats itself, at most 10 times

The pattern is parsed and written anew, so nothing else reaches MongoDB. It becomes one attempt from
the start of the text, because PCRE limits the steps of each attempt, and would make one from each
character. Classes are ASCII, and `$` matches at the end only.
Source, with measurements: docs/decisions/0003-filters.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition, patterns_in
from revstream.resolvers.filters.mongo_query import SPECIAL
from revstream.resolvers.values.output import shorten_repr

__all__ = ["LONGEST_PATTERN", "Pattern", "parse_pattern", "refuse_patterns"]

LONGEST_PATTERN = 200
_MOST_REPEATS = 1000
_MOST_REPEATS_OF_GROUPS = 10
_DEEPEST = 5
_MOST_STEPS = 200_000
"""MongoDB's own limit for one attempt, in 6.0.5; a text that needs more does not match."""

_REPEAT = re.compile(r"[*+?]|\{([0-9]{1,4})(,([0-9]{0,4}))?\}")
_IGNORES_CASE = re.compile(r"\?[a-z]*i")
_MEND_OF_CASE = "; use containsIgnoreCase, or another operator that ends with IgnoreCase"
_CLASSES = {
    "d": "0-9",
    "w": "0-9A-Z_a-z",
    "s": "\\t-\\r ",
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_OF_CLASSES = str.maketrans({each: f"\\{each}" for each in "\\[]^-"} | {"\0": "\\x00"})


@dataclass(frozen=True, slots=True)
class Pattern:
    """Regular expression for MongoDB.

    Attributes:
        expression: in PCRE's syntax.
        prefix: text with which each match begins at the start of the text, for an index.
    """

    expression: str
    prefix: str = ""


@dataclass(slots=True)
class _Part:
    """Parsed alternatives.

    Attributes:
        anchored: each of them begins with `^`.
        prefix: characters after that; "" for several alternatives.
        repeats: there is a repeat inside.
    """

    text: str = ""
    anchored: bool = False
    prefix: str = ""
    repeats: bool = False


def parse_pattern(pattern: str, owner: str) -> Pattern:
    """Parse a regular expression.

    Args:
        owner: the field and operator, for error messages.

    Raises:
        BadUserInput: it is too long, or uses what is not supported.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise BadUserInput(
            f"{owner}: {len(pattern)} characters, maximum is {LONGEST_PATTERN}; shorten the pattern"
        )
    reader = _Reader(pattern, owner)
    part = reader.alternatives(0)
    if reader.rest:
        reader.fail("an opening parenthesis before it; write \\) for the character")
    anywhere = "" if part.anchored else "[\\s\\S]*?"
    expression = f"(*LIMIT_MATCH={_MOST_STEPS})\\A{anywhere}(?:{part.text})"
    return Pattern(expression, part.prefix if part.anchored else "")


def refuse_patterns(condition: Condition) -> None:
    """Refuse regular expressions in a filter of changes, which the gateway evaluates.

    Raises:
        BadUserInput: there is one.
    """
    for each in patterns_in(condition):
        raise BadUserInput(
            f"{each.name}: a regular expression, which subscriptions do not support, because only "
            "MongoDB evaluates it; use startsWith, endsWith or contains"
        )


class _Reader:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str, owner: str) -> None:
        self.rest = pattern
        self._pattern = pattern
        self._owner = owner
        self._required = 0

    def fail(self, expected: str) -> NoReturn:
        found = "its end" if not self.rest else repr(self.rest[0])
        place = len(self._pattern) - len(self.rest) + 1
        raise BadUserInput(
            f"{self._owner}: {shorten_repr(self._pattern)} has {found} at character {place}, "
            f"expected {expected}"
        )

    def alternatives(self, depth: int) -> _Part:
        if depth > _DEEPEST:
            self.fail(f"at most {_DEEPEST} groups inside of each other; nest them less")
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        return _Part(
            "|".join(each.text for each in parts),
            all(each.anchored for each in parts),
            parts[0].prefix if len(parts) == 1 else "",
            any(each.repeats for each in parts),
        )

    def _sequence(self, depth: int) -> _Part:
        part, literal = _Part(), True
        while self.rest and self.rest[0] not in "|)":
            if self._take("^"):
                part.anchored = part.anchored or not part.text
                part.text += "\\A"
                literal = literal and part.text == "\\A"
                continue
            character, text, group = self._atom(depth)
            repeat = self._repeat(group)
            literal = literal and character != "" and not repeat
            part.prefix += character if literal else ""
            part.text += text + repeat
            part.repeats |= bool(repeat) or (group is not None and group.repeats)
        return part

    def _atom(self, depth: int) -> tuple[str, str, _Part | None]:
        """Return a literal character or "", the expression, and the group if it is one."""
        if self._take("("):
            if self.rest.startswith("?") and not self._take("?:"):
                mend = _MEND_OF_CASE if _IGNORES_CASE.match(self.rest) else ""
                self.fail(f"a group; lookaround, names and options are not supported{mend}")
            group = self.alternatives(depth + 1)
            if not self._take(")"):
                self.fail("a closing parenthesis; write \\( for the character")
            return "", f"(?:{group.text})", group
        if self._take("["):
            return "", self._class(), None
        if self._take("."):
            return "", "[^\\n]", None
        if self._take("$"):
            return self._place("\\z")
        if self._take("\\"):
            return self._escape()
        self._place("")
        character, self.rest = self.rest[0], self.rest[1:]
        return character, character.translate(SPECIAL), None

    def _place(self, text: str) -> tuple[str, str, _Part | None]:
        """Return an expression without a character; nothing may repeat it."""
        if self.rest[:1] in ("*", "+", "?", "{"):
            self.fail(f"a character before it, to repeat; write \\{self.rest[0]} for the character")
        return "", text, None

    def _escape(self) -> tuple[str, str, _Part | None]:
        letter = self._escaped()
        if letter == "b":
            return self._place(f"\\{letter}")
        if letter.lower() in _CLASSES:
            opposite = "" if letter.islower() else "^"
            return "", f"[{opposite}{_CLASSES[letter.lower()]}]", None
        character = self._literal(letter)
        return character, character.translate(SPECIAL), None

    def _escaped(self) -> str:
        if not self.rest:
            self.fail("a character after \\; write \\\\ for the character")
        letter, self.rest = self.rest[0], self.rest[1:]
        return letter

    def _literal(self, letter: str, others: str = "d, D, w, W, s, S, b") -> str:
        """Return the character that an escaped letter means; `others` have another meaning."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isalnum() or not letter.isprintable():
            self.rest = letter + self.rest
            self.fail(f"one of {others}, n, r, t or a sign; escape nothing else")
        return letter

    def _class(self) -> str:
        text = "^" if self._take("^") else ""
        if not self.rest or self.rest[0] == "]":
            self.fail("a character in the class; write \\] for the character")
        while not self._take("]"):
            first = self._of_class()
            if len(first) == 1 and self.rest[:1] == "-" and self.rest[1:2] not in ("", "]"):
                self.rest = self.rest[1:]
                last = self._of_class()
                if len(last) > 1 or last < first:
                    self.fail("a range from a lower to a higher character")
                text += f"{first.translate(_OF_CLASSES)}-{last.translate(_OF_CLASSES)}"
            else:
                text += first.translate(_OF_CLASSES) if len(first) == 1 else first
        return f"[{text}]"

    def _of_class(self) -> str:
        """Return one character of a class, or the ranges of an escaped class."""
        if not self.rest:
            self.fail("a closing bracket; write \\[ for the character")
        if self._take("\\"):
            letter = self._escaped()
            return _CLASSES[letter] if letter in _CLASSES else self._literal(letter, "d, w, s")
        if self.rest[0] == "[":
            self.fail("a character; write \\[ for it")
        character, self.rest = self.rest[0], self.rest[1:]
        return character

    def _repeat(self, group: _Part | None) -> str:
        """Return the repeat of an atom, with a maximum, or ""."""
        found = _REPEAT.match(self.rest)
        if found is None:
            if self.rest[:1] == "{":
                self.fail("a number of repeats, such as {2,5}; write \\{ for the character")
            return ""
        sign, low, comma, high = found[0], found[1], found[2], found[3]
        least = int(low) if low else int(sign == "+")
        most = int(high) if high else (least if low and not comma else _MOST_REPEATS)
        if sign == "?":
            most = 1
        if group is not None and (most > _MOST_REPEATS_OF_GROUPS or (group.repeats and most > 1)):
            self.fail(
                f"a maximum of {_MOST_REPEATS_OF_GROUPS} repeats of a group, and no repeats inside "
                "of it; repeat single characters or classes"
            )
        self._required += least
        if not least <= most <= _MOST_REPEATS or self._required > _MOST_REPEATS:
            self.fail(f"repeats in ascending order, at most {_MOST_REPEATS} in all; lower them")
        self.rest = self.rest[len(sign) :]
        if self.rest[:1] in ("*", "+", "?", "{"):
            self.fail("one repeat of a character, not two; remove it")
        return f"{{{least},{most}}}"

    def _take(self, text: str) -> bool:
        if not self.rest.startswith(text):
            return False
        self.rest = self.rest[len(text) :]
        return True
