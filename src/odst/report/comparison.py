"""Runs side by side, on one page that opens offline."""

from pathlib import Path
from typing import Any

from jinja2 import Environment

from odst.files import write_text
from odst.rundir import RunDir

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>odst: comparison</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color-scheme: light dark }
table { border-collapse: collapse } th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #8884 }
td:first-child, th:first-child { text-align: left }
</style>
<h1>Methods by round</h1>
<p>Percentages. <em>related</em>: share of the selected images that show a task class; <em>correct</em>: that got its label.</p>
<table><tr><th>method<th>round<th>error<th>ECE<th>OD-AUROC<th>selected<th>related<th>correct</tr>
{% for name, metrics in runs %}{% for one in metrics %}
<tr><td>{{ name if loop.first else '' }}<td>{{ one.round }}<td>{{ one.error|percent }}<td>{{ one.ece|percent }}
<td>{{ one.od_auroc|percent }}<td>{{ one.selected if one.selected is not none else '–' }}
<td>{{ one.related|percent }}<td>{{ one.correct|percent }}</tr>
{% endfor %}{% endfor %}
</table>
"""


def write_comparison(runs: list[RunDir], page: Path) -> Path:
    environment = Environment(autoescape=True)
    environment.filters["percent"] = lambda value: "–" if value is None else f"{100 * value:.1f}"
    rows: list[tuple[str, list[dict[str, Any]]]] = [(run.path.name, run.metrics()) for run in runs]
    write_text(page, environment.from_string(PAGE).render(runs=rows))
    return page
