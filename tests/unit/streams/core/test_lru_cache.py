"""LRU cache against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.core.lru_cache import LruCache

KEYS = st.sampled_from("abcdef")
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 40)),
    st.tuples(st.just("get"), KEYS, st.just(0)),
    st.tuples(st.just("pop"), KEYS, st.just(0)),
    st.tuples(st.just("clear"), KEYS, st.just(0)),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 5), st.none() | st.integers(1, 120))
def test_the_least_recent_entry_is_evicted_first(
    steps: list[tuple[str, str, int]], most: int, most_size: int | None
) -> None:
    """The cache equals a list of entries in order of use, within both bounds."""
    cache = LruCache[str, int](most=most, most_size=most_size)
    model: list[tuple[str, int, int]] = []
    for number, (step, key, size) in enumerate(steps):
        entry = next((each for each in model if each[0] == key), None)
        if step == "clear":
            cache.clear()
            model.clear()
            continue
        if entry is not None:
            model.remove(entry)
        if step == "put":
            cache.put(key, number, size)
            if most_size is None or size <= most_size // 4:
                model.append((key, number, size))
            while len(model) > most or (most_size is not None and _size(model) > most_size):
                del model[0]
        else:
            found = cache.get(key) if step == "get" else cache.pop(key)
            assert found == (None if entry is None else entry[1])
            if step == "get" and entry is not None:
                model.append(entry)
        assert len(cache) == len(model)


def _size(entries: list[tuple[str, int, int]]) -> int:
    return sum(size for _, _, size in entries)
