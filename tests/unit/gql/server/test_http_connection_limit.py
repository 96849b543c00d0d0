"""HTTP connection limit: the number of open ones is bounded, and health is always served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from revstream.gql.server.http_connection_limit import HEALTH_PATHS, RESERVE, HttpConnections


class Held:
    """A connection as `HttpConnections` knows it."""

    def __init__(self) -> None:
        self.dropped = False
        self.unread = 0

    def drop(self) -> None:
        self.dropped = True

    def unread_bytes(self) -> int:
        return self.unread


MOST = 4
STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "respond", "wait", "close"]), st.integers(0, 60)),
    max_size=300,
)


@given(STEPS)
def test_the_oldest_idle_connection_is_closed_and_no_response_is_cut(
    steps: list[tuple[str, int]],
) -> None:
    """The model is two lists; over the limit only health is served."""
    connections = HttpConnections(most=MOST, most_bytes=100)
    known: dict[int, Held] = {}
    waiting: list[int] = []
    responding: list[int] = []
    for act, number in steps:
        held = known.get(number)
        if act == "open" and held is None:
            count = len(waiting) + len(responding)
            new = Held()
            admitted = connections.open(new)
            if count >= MOST and waiting:
                longest = waiting.pop(0)
                assert known.pop(longest).dropped
                count -= 1
            assert admitted == (count < MOST + RESERVE)
            if admitted:
                known[number] = new
                waiting.append(number)
                assert connections.serves(new, "/livez")
                assert connections.serves(new, "/graphql") == (count < MOST)
        elif held is not None and act == "respond" and number in waiting:
            waiting.remove(number)
            responding.append(number)
            connections.respond(held)
        elif held is not None and act == "wait" and number in responding:
            responding.remove(number)
            waiting.append(number)
            connections.wait(held)
        elif held is not None and act == "close":
            connections.close(held)
            connections.close(held)
            del known[number]
            (waiting if number in waiting else responding).remove(number)
        assert len(connections) == len(known)
        assert not any(each.dropped for each in known.values())
    for held in known.values():
        connections.close(held)
    assert len(connections) == 0


def test_a_connection_beyond_the_limit_is_served_once_another_ends() -> None:
    """Refused ones are counted."""
    connections = HttpConnections(most=1, most_bytes=100)
    first, second = Held(), Held()
    assert connections.open(first)
    connections.respond(first)
    assert connections.open(second)
    assert all(connections.serves(second, path) for path in HEALTH_PATHS)
    assert not connections.serves(second, "/graphql")
    assert connections.refused == 1
    connections.close(first)
    assert connections.serves(second, "/graphql")


def test_unread_bytes_of_clients_have_a_limit() -> None:
    """Beyond it those with most bytes are closed; bytes read meanwhile are not counted."""
    connections = HttpConnections(most=10, most_bytes=100)
    first, second, third, fourth = (Held() for _ in range(4))
    for held, unread in ((first, 40), (second, 50), (third, 30)):
        held.unread = unread
        connections.open(held)
        connections.respond(held)
        if held is third:
            first.unread = 20
        connections.hold(held)
    assert connections.unread_bytes == 100
    assert not any(each.dropped for each in (first, second, third))
    connections.open(fourth)
    fourth.unread = 10
    connections.hold(fourth)
    assert [each.dropped for each in (first, second, third, fourth)] == [False, True, False, False]
    assert (connections.unread_bytes, connections.unread, len(connections)) == (60, 1, 3)
    connections.release(third)
    connections.close(first)
    assert connections.unread_bytes == 10
