"""Files for monitoring tools: a Grafana dashboard and Prometheus alert rules on the metrics of docs/metrics.md, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "monitoring_files"


def grafana() -> str:
    """Return the Grafana dashboard, JSON."""
    return (_FOLDER / "grafana.json").read_text(encoding="utf-8")


def alerts() -> str:
    """Return the Prometheus alert rules, YAML."""
    return (_FOLDER / "alerts.yml").read_text(encoding="utf-8")
