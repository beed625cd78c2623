"""The Grafana dashboard and the alert rules: what they ask for is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Histogram

from quaestor.cli import main
from quaestor.cli.cluster_metrics import FAMILIES
from quaestor.observability import monitoring
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.vocabularies import Vocabulary

SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""


def exposed() -> dict[str, dict[str, Vocabulary]]:
    """Of every series the app and the grid expose, its labels and their values; None: names of configuration or code."""
    telemetry = Telemetry()
    vocabularies: dict[str, dict[str, Vocabulary]] = {
        name: dict.fromkeys(labels) for name, (_, labels) in FAMILIES.items()
    }
    for collector, names in telemetry.families.registry._collector_to_names.items():
        labels = telemetry.families.vocabularies.get(collector._name, {})  # type: ignore[attr-defined]
        for name in names:
            vocabularies[name] = dict(labels) | ({"le": None} if isinstance(collector, Histogram) else {})
    return vocabularies


EXPOSED = exposed()
GRAFANA: dict[str, Any] = json.loads(monitoring.grafana())
RULES = [rule for group in yaml.safe_load(monitoring.alerts())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in GRAFANA["panels"] if panel["type"] != "row"]
ASKED = {rule["alert"]: [rule["expr"]] for rule in RULES} | {
    panel["title"]: [target["expr"] for target in panel["targets"]] for panel in PANELS
}


def nodes(expression: Any) -> Iterator[Any]:
    """An expression of PromQL, and all that it is made of."""
    yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "selector", "vs"):
        inner = getattr(expression, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from nodes(inner)
    for inner in getattr(expression, "args", None) or ():
        yield from nodes(inner)


@pytest.mark.parametrize("title", ASKED)
def test_queried_metrics_are_exposed_with_these_labels_and_values(title: str) -> None:
    """Every metric, every label that is matched or grouped by, every value that a label is compared with."""
    seen = 0
    for text in ASKED[title]:
        text = text.replace("$__rate_interval", "5m")
        parsed = promql_parser.parse(text)
        names = re.findall(r"\bquaestor_\w+", text)
        selectors = [node for node in nodes(parsed) if isinstance(node, promql_parser.VectorSelector)]
        assert sorted(named.name for named in selectors) == sorted(names)
        for selector in selectors:
            labels = EXPOSED[selector.name]
            for matcher in selector.matchers.matchers:
                assert matcher.name in SCRAPED | labels.keys(), (text, matcher.name)
                vocabulary = labels.get(matcher.name)
                assert vocabulary is None or matcher.value in vocabulary, (text, matcher.value)
        grouped = {label.strip() for by in re.findall(r"\bby \(([^)]*)\)", text) for label in by.split(",")}
        assert grouped <= SCRAPED.union(*(EXPOSED[name] for name in names)), text
        seen += len(selectors)
    assert seen


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_legends_name_labels_that_the_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
            assert any(label in EXPOSED[name] for name in re.findall(r"\bquaestor_\w+", target["expr"]))
            assert "by (" not in target["expr"] or re.search(rf"by \([^)]*\b{label}\b", target["expr"])


def test_panels_neither_overlap_nor_share_a_number() -> None:
    """Grafana would move them."""
    places = [panel["gridPos"] for panel in GRAFANA["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in GRAFANA["panels"]}) == len(places)


def test_the_first_canary_that_is_rolled_back_is_an_increase() -> None:
    """A series that begins with 1 would never have increased, and the alert would be silent."""
    assert 'quaestor_ttl_canaries_ended_total{how="rolled-back"} 0.0' in Telemetry().exposition().decode()


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_both_are_printed_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("grafana", monitoring.grafana()), ("alerts", monitoring.alerts())):
        with pytest.raises(SystemExit) as ended:
            main.main(["monitoring", name])
        assert not ended.value.code
        assert capsys.readouterr().out == text
