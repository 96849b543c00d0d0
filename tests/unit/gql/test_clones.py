"""Objects with the attributes of another one."""

from __future__ import annotations

import pytest

from gql.clones import cloner


class Thing:
    def __init__(self, count: int) -> None:
        for number in range(count):
            setattr(self, f"name_{number}", [number])


@pytest.mark.parametrize("count", [0, 1, 30, 40])
def test_a_clone_has_the_same_attributes_and_is_another_object(count: int) -> None:
    thing = Thing(count)
    made = cloner(Thing, vars(thing))(thing)
    assert type(made) is Thing
    assert made is not thing
    assert vars(made) == vars(thing)
    assert all(vars(made)[name] is each for name, each in vars(thing).items())


def test_what_is_set_on_a_clone_is_not_set_on_the_other() -> None:
    thing = Thing(2)
    made = cloner(Thing, vars(thing))(thing)
    made.name_0 = [9]  # type: ignore[attr-defined]
    assert vars(thing)["name_0"] == [0]
