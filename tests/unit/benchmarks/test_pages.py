"""Text that a benchmark writes into a page; the rest of the page stays unchanged."""

from __future__ import annotations

import re

import pytest

from benchmarks import pages
from benchmarks.__main__ import main
from benchmarks.charts import Chart, bars, curve
from benchmarks.figures import Table, over_rounds

PAGE = """# By hand

<!-- benchmark one -->
Old.
<!-- /benchmark one -->

Between.

<!-- benchmark two-three -->
<!-- /benchmark two-three -->

Profiles.
"""


def test_only_the_text_between_the_marks_is_replaced() -> None:
    """The rest of the page keeps its bytes."""
    filled = pages.fill(PAGE, "one", "New.\n\nNewer.")
    assert filled == PAGE.replace("Old.", "New.\n\nNewer.")
    assert pages.fill(filled, "one", "Old.") == PAGE


def test_an_empty_section_is_filled_and_filled_again() -> None:
    """The second text replaces the first."""
    once = pages.fill(PAGE, "two-three", "First.")
    assert pages.fill(once, "two-three", "Second.") == once.replace("First.", "Second.")


@pytest.mark.parametrize("page", ["", PAGE + PAGE, PAGE.replace("/benchmark one", "")])
def test_a_page_without_the_marks_is_refused(page: str) -> None:
    """Each mark must occur once."""
    with pytest.raises(ValueError, match="once each"):
        pages.fill(page, "one", "New.")


def test_the_sections_of_the_documentation_are_benchmarks() -> None:
    """`--page` runs the benchmarks for which the page has a section."""
    [argument] = [each for each in main.params if each.name == "names"]
    for page in (pages.BENCHMARKS, pages.LAYOUTS):
        found = pages.names(page.read_text(encoding="utf-8"))
        assert found
        assert set(found) <= set(argument.type.choices)


def test_tables_and_charts_are_written_with_their_origin() -> None:
    """The text ends with the machine on which they were measured."""
    table = Table("Title", "what", "ms")
    table.add("this", 1.5)
    markdown = pages.markdown("a machine", [table, bars("chart", {"this": 1.5, "that": 3.0})])
    assert re.search(r"^\| this \| 1.50 \|$", markdown, re.M)
    assert 'x-axis ["this", "that"]' in markdown
    assert "bar [1.5, 3]" in markdown
    assert markdown.endswith("a machine\n\n</details>")


def test_a_curve_has_a_readable_number_of_points() -> None:
    """360 values become 60 points."""
    chart = curve("title", "minutes", 30, "MB", [float(n) for n in range(360)])
    line = chart.markdown().splitlines()[-2]
    assert line.startswith("    line [0, 6, 12, ")
    assert line.count(",") == 59


def test_several_rounds_are_reported_by_their_medians() -> None:
    """Each number is the median of its rounds."""

    def round_(ms: float, other: float, text: str) -> list[Table | Chart]:
        table = Table("Title", "what", "ms", "told")
        table.add("this", ms, text)
        table.add("that", other, text)
        table.note(text)
        return [table, bars("chart", {"this": ms, "that": other})]

    table, chart = over_rounds([round_(9, 2, "a"), round_(1, 3, "b"), round_(5, 1, "c")])
    assert re.search(r"^\| this \| 5.00 \| +c \|$", table.markdown(), re.M)
    assert re.search(r"^\| that \| 2.00 \| +c \|$", table.markdown(), re.M)
    assert table.markdown().endswith("\n\nc")
    assert "bar [5, 2]" in chart.markdown()


def test_rounds_with_different_rows_are_refused() -> None:
    """Their medians would be of different things."""
    one, other = Table("Title", "what", "ms"), Table("Title", "what", "ms")
    one.add("this", 1.0)
    other.add("that", 1.0)
    with pytest.raises(ValueError, match="that"):
        over_rounds([[one], [other]])


def test_curves_of_several_lengths_are_reported_by_the_longest() -> None:
    """Curves of several rounds are not averaged."""
    short, long = (
        curve("title", "s", 1, "%", [float(n) for n in range(count)]) for count in (2, 3)
    )
    assert over_rounds([[long], [short]]) == [short]
