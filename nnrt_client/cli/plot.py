"""Plots as SVG."""

import math
from collections.abc import Mapping, Sequence

from nnrt_client.cli.page import escaped

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 110, 20, 45
_TICKS = 5
_BAR, _BAR_GAP, _LEGEND, _KEY = 18, 26, 22, 120
_COLORS = ("#2a78d6", "#e0803a", "#3a9e5c", "#b04ac0", "#c8424a", "#7a6a50")
# Neighbours differ: what a client does is blue, the way is grey, what a daemon does green, the device's red and orange.
_COLORS_OF_SHARES = (
    *("#1f5fa8", "#5b9be0", "#8a8a8a", "#3a9e5c", "#c8424a", "#8fce5a", "#e0803a"),
    *("#2c7a6b", "#b5b5b5", "#77b7f0", "#16406f"),
)


def line_plot(xs: Sequence[float], series: Mapping[str, Sequence[float]], x_label: str, y_label: str) -> str:
    """Lines over common xs, each with its name at its end; y begins at 0."""
    low, high = min(xs), max(xs)
    top = _round_up(max(max(ys) for ys in series.values()))

    def x_at(x: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((x - low) / (high - low) if high > low else 0.5)

    def y_at(y: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (y / top)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">']
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        y = y_at(value)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in _thinned(xs):
        parts.append(f'<text x="{x_at(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{escaped(x_label)}</text>')
    parts.append(f'<text x="8" y="{_TOP - 6}">{escaped(y_label)}</text>')
    names = _apart({name: y_at(ys[-1]) for name, ys in series.items()})
    for color, (name, ys) in zip(_COLORS * len(series), series.items(), strict=False):
        points = [(x_at(x), y_at(y)) for x, y in zip(xs, ys, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (px, py), x, y in zip(points, xs, ys, strict=True):
            title = escaped(f"{name} at {x:g}: {y:g}")
            parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{color}"><title>{title}</title></circle>')
        parts.append(
            f'<text x="{points[-1][0] + 8:.1f}" y="{names[name] + 4:.1f}" style="fill:{color}">{escaped(name)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def share_bars(bars: Mapping[str, Mapping[str, float]]) -> str:
    """A bar for each label, of shares that add up to 1, all with the same names; the names stand above them."""
    names = list(next(iter(bars.values())))
    colors = dict(zip(names, _COLORS_OF_SHARES * len(names), strict=False))
    keys = _WIDTH // _KEY
    top = _LEGEND * math.ceil(len(names) / keys) + 10
    height = top + len(bars) * (_BAR + _BAR_GAP)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">']
    for at, (name, color) in enumerate(colors.items()):
        left, y = at % keys * _KEY, at // keys * _LEGEND
        parts.append(f'<rect x="{left}" y="{y}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{left + 17}" y="{y + 11}">{escaped(name)}</text>')
    for at, (label, shares) in enumerate(bars.items()):
        y, x = top + at * (_BAR + _BAR_GAP), 0.0
        parts.append(f'<text x="0" y="{y + 13}">{escaped(label)}</text>')
        for name, share in shares.items():
            width, title = _WIDTH * share, escaped(f"{name}: {share:.1%}")
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 18}" width="{width:.1f}" height="{_BAR}" fill="{colors[name]}">'
                f"<title>{title}</title></rect>"
            )
            x += width
    return "\n".join([*parts, "</svg>"])


def _round_up(value: float) -> float:
    """The next number of the kind 1, 2, 5, 10, ... so that ticks are round; above 0."""
    if not value > 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= value * 0.999)


def _thinned(xs: Sequence[float], most: int = 16) -> Sequence[float]:
    return xs[:: math.ceil(len(xs) / most)]


def _apart(places: Mapping[str, float], gap: float = 14) -> dict[str, float]:
    """Heights for names, none on top of another."""
    apart: dict[str, float] = {}
    previous = math.inf
    for name, y in sorted(places.items(), key=lambda item: -item[1]):
        previous = apart[name] = min(y, previous - gap)
    return apart
