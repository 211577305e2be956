"""Places for the vertices of a graph without cycles, in layers from top to bottom (after Sugiyama).

Each vertex is below those that it follows. Edges over several layers get a place in each of them, so that they don't
run behind other vertices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[int, int]

BEND_WIDTH = 14.0
GAP = 26.0

_ORDER_SWEEPS = 6
_PLACE_SWEEPS = 10
# From then on edges run straight: more would take more time than they are worth.
_MOST_BENDS = 20_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The middle and the layer of each vertex, and through which places each edge goes, ends included."""

    places: Sequence[tuple[float, int]]
    routes: Sequence[Sequence[tuple[float, int]]]
    width: float
    layers: int


def layout(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Places for vertices of these widths. Of each edge the first vertex has the smaller number."""
    layer_of = _layers(len(widths), edges)
    all_widths = list(widths)
    links: list[Edge] = []
    chains: list[list[int]] = []
    for above, below in edges:
        span = layer_of[below] - layer_of[above]
        is_bent = len(all_widths) - len(widths) + span <= _MOST_BENDS
        chain = [above]
        if is_bent:
            for step in range(1, span):
                chain.append(len(all_widths))
                all_widths.append(BEND_WIDTH)
                layer_of.append(layer_of[above] + step)
        chain.append(below)
        links += pairwise(chain)
        chains.append(chain)
    rows: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for vertex, layer in enumerate(layer_of):
        rows[layer].append(vertex)
    uppers, lowers = _neighbours(len(all_widths), links)
    _sort(rows, uppers, lowers)
    xs = _placed(rows, uppers, lowers, all_widths)
    left = min((x - width / 2 for x, width in zip(xs, all_widths, strict=True)), default=0.0)
    right = max((x + width / 2 for x, width in zip(xs, all_widths, strict=True)), default=0.0)
    places = [(x - left, layer) for x, layer in zip(xs, layer_of, strict=True)]
    routes = [[places[vertex] for vertex in chain] for chain in chains]
    return Layout(places[: len(widths)], routes, right - left, len(rows))


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """Each vertex as far down as the longest way to it; one that follows nothing just above what follows it."""
    layer_of = [0] * count
    for above, below in sorted(edges):
        layer_of[below] = max(layer_of[below], layer_of[above] + 1)
    has_above = {below for _, below in edges}
    nearest: dict[int, int] = {}
    for above, below in edges:
        if above not in has_above:
            nearest[above] = min(nearest.get(above, layer_of[below]), layer_of[below])
    for vertex, layer in nearest.items():
        layer_of[vertex] = layer - 1
    return layer_of


def _neighbours(count: int, links: Sequence[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _sort(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order the rows so that few edges cross: each vertex where its neighbours are on average, over and over."""
    position = [0.0] * len(above)
    for row in rows:
        _number(row, position)
    for is_down, row in _sweeps(rows, _ORDER_SWEEPS):
        neighbours = above if is_down else below
        wanted = {vertex: _mean([position[one] for one in neighbours[vertex]], position[vertex]) for vertex in row}
        row.sort(key=wanted.__getitem__)
        _number(row, position)


def _number(row: Sequence[int], position: list[float]) -> None:
    """Positions in a row, between 0 and 1, so that rows of different lengths compare."""
    for at, vertex in enumerate(row):
        position[vertex] = (at + 0.5) / len(row)


def _placed(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], widths: Sequence[float]
) -> list[float]:
    """The middle of each vertex: as near as possible to those of its neighbours, without touching the next."""
    xs = [0.0] * len(widths)
    for row in rows:
        for vertex, offset in zip(row, _offsets(row, widths), strict=True):
            xs[vertex] = offset
        middle = (xs[row[0]] + xs[row[-1]]) / 2
        for vertex in row:
            xs[vertex] -= middle
    for _, row in _sweeps(rows, _PLACE_SWEEPS):
        wanted = [_mean([xs[one] for one in (*above[vertex], *below[vertex])], xs[vertex]) for vertex in row]
        offsets = _offsets(row, widths)
        slack = _ascending([x - offset for x, offset in zip(wanted, offsets, strict=True)])
        for vertex, free, offset in zip(row, slack, offsets, strict=True):
            xs[vertex] = free + offset
    return xs


def _offsets(row: Sequence[int], widths: Sequence[float]) -> list[float]:
    """Give the middles of a row that is packed."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + GAP)
    return offsets


def _ascending(values: Sequence[float]) -> list[float]:
    """The ascending numbers nearest to these, by least squares: neighbours in the wrong order become their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (right, n), (left, m) = blocks.pop(), blocks.pop()
            blocks.append(((left * m + right * n) / (m + n), m + n))
    return [value for value, count in blocks for _ in range(count)]


def _sweeps(rows: list[list[int]], count: int) -> Iterator[tuple[bool, list[int]]]:
    """The rows, downwards and upwards in turn; the last time downwards."""
    for sweep in reversed(range(count)):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            yield is_down, row


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
