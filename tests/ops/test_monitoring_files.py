"""The rules and the dashboard in `ops`: valid, tested, and about metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from revstream.gql.observability.metric_definitions import METRICS
from tests.support.gateway import ROOT
from tests.support.prometheus import DASHBOARD, RULES, dashboard_expressions, program

UNIT_TESTS = ROOT / "tests" / "ops" / "prometheus-rules.test.yaml"
PAGE = ROOT / "docs" / "how-to" / "monitor.md"
# Of every target, and of Python's and Prometheus' own metrics.
LABELS = {"job", "instance", "le", "alertname", "alertstate"}
OTHERS = {
    "up",
    "ALERTS",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [each for group in groups for each in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [each for each in rules() if "alert" in each]


def expressions() -> Iterator[str]:
    yield from (each["expr"] for each in rules())
    yield from dashboard_expressions()


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_prometheus_accepts_the_rules() -> None:
    """`promtool check rules` finds neither a syntax error nor a duplicate."""
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stderr
    assert "SUCCESS" in done.stdout


def test_each_alert_fires_on_its_condition_and_no_other_time() -> None:
    """`promtool test rules` evaluates them over made-up series."""
    done = promtool("test", "rules", UNIT_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_unit_test_and_a_place_on_the_page() -> None:
    """Each test has a time at which the alert is silent, and one at which it fires."""
    tested = yaml.safe_load(UNIT_TESTS.read_text(encoding="utf-8"))["tests"]
    named = [each["alert"] for each in alerts()]
    assert len(set(named)) == len(named) > 15
    assert {each["name"] for each in tested} == {"healthy", *named}
    for each in tested[1:]:
        silent, firing = each["promql_expr_test"]
        assert f'"{each["name"]}"' in silent["expr"] == firing["expr"]
        assert silent["exp_samples"] == []
        assert firing["exp_samples"] != []
    page = PAGE.read_text(encoding="utf-8")
    assert {each for each in named if f"`{each}`" not in page} == set()
    documented = set(re.findall(r"`(Revstream\w+)`", page))
    assert documented - set(named) == set()


def test_each_alert_has_a_severity_a_summary_and_a_description() -> None:
    """A person who is called at night sees both."""
    for each in alerts():
        assert each["labels"]["severity"] in {"critical", "warning", "info"}, each
        assert set(each["annotations"]) == {"summary", "description"}, each


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_expressions_use_metrics_and_labels_that_exist(expression: str) -> None:
    """A misspelt name would be an alert that never fires, or an empty panel."""
    recorded = {each["record"] for each in rules() if "record" in each}
    labels = {each.name: set(each.labels) for each in METRICS}
    bare = re.sub(r'"[^"]*"', '""', expression)
    names = set(
        re.findall(r"\b(?:revstream|process|job|job_kind|job_collection)[\w]*:[\w:]+", bare)
    )
    assert names <= recorded
    plain = re.sub(r"\b\w+:[\w:]+", "", bare)
    found = set(re.findall(r"\b(?:revstream_\w+|process_\w+|up|ALERTS)\b", plain))
    assert found | names, expression
    metrics = {re.sub(r"_(bucket|count|sum)$", "", each) for each in found}
    assert metrics <= OTHERS | labels.keys()
    allowed = LABELS.union(*(labels.get(each, set()) for each in metrics))
    if names:
        allowed |= {"collection", "kind"}
    grouped = [
        each for found in re.findall(r"(?:by|on) \(([^)]*)\)", bare) for each in found.split(",")
    ]
    matched = re.findall(r"(\w+)\s*=~?\"", bare)
    assert {each.strip() for each in (*grouped, *matched)} <= allowed


def test_the_dashboard_shows_every_kind_of_metric_and_no_panel_covers_another() -> None:
    """Panels have an explanation, a unit, a legend and a place of their own."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (column, row)
            for column in range(place["x"], place["x"] + place["w"])
            for row in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert all(each["legendFormat"] for each in panel["targets"]), panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
    assert max(column for column, _ in taken) == 23
    assert {each["name"] for each in board["templating"]["list"]} == {
        "datasource",
        "job",
        "instance",
    }
