"""Plots as small SVGs that take the page's colours: every line and letter is styled by class, so dark mode and print work."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, floor, log, log10

import numpy as np
from markupsafe import Markup, escape

from odst.report.pool_scan import EDGES

WIDTH, HEIGHT = 360, 220
CONFIDENCES = (0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999)  # ticks of a log-odds axis


@dataclass(frozen=True)
class Axes:
    """A rectangle of data inside a rectangle of pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = 44
    bottom: int = 34

    def at(self, x: float, y: float) -> tuple[float, float]:
        right, top = self.width - 12, 14
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        return (
            round(self.left + across * (right - self.left), 1),
            round(self.height - self.bottom - up * (self.height - self.bottom - top), 1),
        )


@dataclass(frozen=True)
class Series:
    """One line over rounds: fractions, None where a round has no value."""

    name: str
    style: str  # a CSS class
    values: Sequence[float | None]
    intervals: Sequence[tuple[float, float] | None] = field(default_factory=list)
    labelled: bool = False


def rounds_chart(title: str, series: Sequence[Series], *, scale: float = 100, unit: str = "%") -> Markup:
    """Lines over rounds, points labelled, intervals as whiskers."""
    shown = [v * scale for one in series for v in one.values if v is not None]
    shown += [v * scale for one in series for pair in one.intervals if pair for v in pair]
    if not shown:
        return Markup("")
    count = max(len(one.values) for one in series)
    ticks = nice_ticks(min(shown), max(shown))
    axes = Axes((-0.25, max(count - 1, 1) + 0.25), (ticks[0], ticks[-1]))
    parts = [_grid_y(axes, ticks, unit)]
    for t in range(count):
        parts.append(_text(*axes.at(t, ticks[0]), "base" if t == 0 else f"round {t}", "tick mid", dy=18))
    for one in series:
        points = [(t, v * scale) for t, v in enumerate(one.values) if v is not None]
        for t, pair in enumerate(one.intervals):
            if pair:
                (x, low), (_, high) = axes.at(t, pair[0] * scale), axes.at(t, pair[1] * scale)
                parts.append(
                    f'<path class="whisker {one.style}" d="M{x} {low}V{high}M{x - 4} {low}h8M{x - 4} {high}h8"/>'
                )
        path = "L".join(f"{x} {y}" for x, y in (axes.at(*point) for point in points))
        if path:
            parts.append(f'<path class="line {one.style}" d="M{path}"/>')
        for t, v in points:
            x, y = axes.at(t, v)
            hint = f"{one.name}, {'base' if t == 0 else f'round {t}'}: {_short(v)}{'' if unit == '%' else ' '}{unit}"
            parts.append(
                f'<circle class="dot {one.style}" cx="{x}" cy="{y}" r="3.5"><title>{escape(hint)}</title></circle>'
            )
            if one.labelled:
                parts.append(_text(x + 7, y - 6, _short(v), "value"))
    return _svg(title, axes, parts)


def class_bars(title: str, classes: Sequence[str], used: Sequence[int], entries: Sequence[int], k: int) -> Markup:
    """The paper's histogram: images taken per class (solid), with their repeats (pale), against the cap k."""
    K = len(classes)
    top = nice_ticks(0, max(k, *entries))
    width = max(WIDTH, 60 + 10 * K)
    labelled = K <= 20
    longest = max(len(name) for name in classes)
    slanted = labelled and longest * 7 > (width - 56) / K
    axes = Axes((0, K), (0, top[-1]), width=width, height=HEIGHT + (50 if slanted else 0), bottom=84 if slanted else 34)
    parts = [_grid_y(axes, top, "")]
    for c, (name, u, e) in enumerate(zip(classes, used, entries, strict=True)):
        for value, style in ((e, "bar pale"), (u, "bar")):
            (x0, y0), (x1, y1) = axes.at(c + 0.15, value), axes.at(c + 0.85, 0)
            hint = f"{name}: {u:,} images" + (f", {e:,} with repeats" if e > u else "") + f", at most {k:,}"
            parts.append(
                f'<rect class="{style}" x="{x0}" y="{y0}" width="{round(x1 - x0, 1)}" height="{round(y1 - y0, 1)}">'
                f"<title>{escape(hint)}</title></rect>"
            )
        if labelled:
            x, y = axes.at(c + 0.5, 0)
            text = name if len(name) <= 12 else name[:11] + "…"
            if slanted:
                parts.append(_text(0, 0, text, "tick end", transform=f"translate({x + 4} {y + 14}) rotate(-45)"))
            else:
                parts.append(_text(x, y, text, "tick mid", dy=18))
    (x0, y), (x1, _) = axes.at(0, k), axes.at(K, k)
    parts.append(f'<path class="cap" d="M{x0} {y}H{x1}"/>')
    parts.append(_text(x1, y - 4, f"at most {k:,}", "tick end"))
    return _svg(title, axes, parts)


def confidence_chart(
    title: str, counts: dict[str, np.ndarray], thresholds: Iterable[tuple[str, float]], *, small: bool = False
) -> Markup:
    """Shares of each set by confidence, on an axis of log-odds; thresholds (class, log-odds) as lines."""
    shares = {name: count / max(1, count.sum()) for name, count in counts.items()}
    top = max((share.max() for share in shares.values()), default=0) or 1
    width, height = (WIDTH, 150) if small else (2 * WIDTH, 240)
    axes = Axes((float(EDGES[0]), float(EDGES[-1])), (0, float(top)), width=width, height=height, left=12)
    base = axes.at(0, 0)[1]
    parts = []
    for p in (0.2, 0.8, 0.99, 0.999, 0.99999) if small else CONFIDENCES:
        x, _ = axes.at(log(p / (1 - p)), 0)
        parts.append(f'<path class="grid" d="M{x} 14V{base}"/>')
        parts.append(_text(x, base, _confidence(p), "tick mid", dy=16))
    for name, share in shares.items():
        path = "".join(
            f"{'M' if i == 0 else 'L'}{a} {b}H{c}"
            for i, (s, low, high) in enumerate(zip(share, EDGES[:-1], EDGES[1:], strict=True))
            for (a, b), (c, _) in [(axes.at(float(low), float(s)), axes.at(float(high), float(s)))]
        )
        first, last = axes.at(float(EDGES[0]), 0)[0], axes.at(float(EDGES[-1]), 0)[0]
        parts.append(f'<path class="area {name}" d="M{first} {base}{path.replace("M", "L", 1)}L{last} {base}Z"/>')
    for name, odds in thresholds:
        if np.isfinite(odds):
            x, _ = axes.at(float(np.clip(odds, EDGES[0], EDGES[-1])), 0)
            hint = f"{name}: threshold {_confidence(1 / (1 + exp(-odds)))}"
            parts.append(f'<path class="threshold" d="M{x} 14V{base}"><title>{escape(hint)}</title></path>')
    parts.append(f'<path class="axis" d="M12 {base}H{axes.width - 12}"/>')
    return _svg(title, axes, parts)


def reliability_chart(title: str, confidence: np.ndarray, correct: np.ndarray, bins: int) -> Markup:
    """Accuracy against confidence; a bar per bin that has images, paler the fewer they are."""
    axes = Axes((0, 1), (0, 1), width=250, height=240)
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    right = np.bincount(place, weights=correct, minlength=bins)
    parts = [_grid_y(axes, [0, 0.25, 0.5, 0.75, 1], "", scale=100)]
    for tick in (0, 0.5, 1):
        parts.append(_text(*axes.at(tick, 0), f"{100 * tick:g} %", "tick mid", dy=18))
    for b in np.flatnonzero(count):
        accuracy = right[b] / count[b]
        (x0, y0), (x1, y1) = axes.at(b / bins + 0.004, accuracy), axes.at((b + 1) / bins - 0.004, 0)
        weight = 0.35 + 0.65 * log10(1 + count[b]) / log10(1 + count.max())
        hint = f"confidence {b / bins:.0%} to {(b + 1) / bins:.0%}: {count[b]:,} images, {accuracy:.1%} right"
        parts.append(
            f'<rect class="bar" style="opacity:{weight:.2f}" x="{x0}" y="{y0}" width="{round(x1 - x0, 1)}" '
            f'height="{round(y1 - y0, 1)}"><title>{hint}</title></rect>'
        )
    (x0, y0), (x1, y1) = axes.at(0, 0), axes.at(1, 1)
    parts.append(f'<path class="cap" d="M{x0} {y0}L{x1} {y1}"/>')
    return _svg(title, axes, parts)


def nice_ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that enclose both."""
    span = (high - low) or abs(high) or 1.0
    power = 10 ** floor(log10(span / 3))
    step = next(m * power for m in (1, 2, 5, 10) if span / (m * power) <= 4)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last += first == last
    return [round(i * step, 10) for i in range(first, last + 1)]


def _grid_y(axes: Axes, ticks: Sequence[float], unit: str, scale: float = 1) -> str:
    parts = []
    for tick in ticks:
        (x0, y), (x1, _) = axes.at(axes.x[0], tick), axes.at(axes.x[1], tick)
        parts.append(f'<path class="grid" d="M{x0} {y}H{x1}"/>')
        parts.append(_text(x0 - 5, y + 4, f"{tick * scale:,g}", "tick end"))
    if unit:
        parts.append(_text(4, 10, unit, "tick"))
    return "".join(parts)


def _text(x: float, y: float, text: str, style: str, dy: float = 0, transform: str = "") -> str:
    place = f'transform="{transform}"' if transform else f'x="{x}" y="{y + dy}"'
    return f'<text class="{style}" {place}>{escape(text)}</text>'


def _svg(title: str, axes: Axes, parts: Iterable[str]) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {axes.width} {axes.height}" role="img" aria-label="{escape(title)}" '
        f'style="max-width:{round(axes.width * 1.15)}px;min-width:{min(axes.width, 320) if axes.width <= WIDTH else axes.width}px">'
        f"{''.join(parts)}</svg>"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def _confidence(p: float) -> str:
    return f"{100 * p:.7f}".rstrip("0").rstrip(".") + " %" if p <= 0.9999995 else "100 %"
