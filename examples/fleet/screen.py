"""Output of the demo: a live table in a terminal, or lines where there is no terminal."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

_FRAMES_PER_S = 8
_LINES_PER_S = 1
_BAR_WIDTH = 30
_COLOURS = {"ready": "green", "draining": "yellow", "gone": "red"}


@dataclass(frozen=True, slots=True)
class DeviceView:
    """State of one daemon, the number of its runs since the start, and the time that they take."""

    name: str
    state: str
    runs: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class View:
    """State of all daemons."""

    devices: Sequence[DeviceView]
    answered: int
    failed: int
    p99_ms: float


class Screen:
    """Live display of the current view, with messages above it. A context manager."""

    def __init__(self, console: Console, look: Callable[[], View], most_per_s: float) -> None:
        """Create a screen; `most_per_s` is the rate of runs that fills a bar."""
        self._console = console
        self._look = look
        self._most_per_s = most_per_s
        self._rates = _Rates()
        self._is_over = threading.Event()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._thread = threading.Thread(target=self._show_repeatedly)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._live:
            self._live.stop()

    def report(self, what: str) -> None:
        """Print a message."""
        self._console.print(f"{time.strftime('%H:%M:%S')}  {what}", soft_wrap=True)

    def _show_repeatedly(self) -> None:
        pause_s = 1 / (_FRAMES_PER_S if self._live else _LINES_PER_S)
        while not self._is_over.wait(pause_s):
            view = self._look()
            rates = self._rates.update(view)
            if self._live:
                self._live.update(self._drawn(view, rates), refresh=True)
            else:
                self._console.print(_line(view, rates), soft_wrap=True)

    def _drawn(self, view: View, rates: dict[str, float]) -> RenderableType:
        table = Table("device", "state", "runs/s", "", "a run takes", "runs", box=None, padding=(0, 2, 0, 0))
        for column in 2, 4, 5:
            table.columns[column].justify = "right"
        for device in view.devices:
            rate = rates[device.name]
            table.add_row(
                device.name,
                Text(device.state, _COLOURS.get(device.state, "")),
                f"{rate:.0f}",
                ProgressBar(self._most_per_s, min(rate, self._most_per_s), _BAR_WIDTH),
                f"{device.latency_ms:.1f} ms",
                f"{device.runs}",
            )
        return Group("", table, "", _total(view, rates))


class _Rates:
    """Runs per second of each device over the last second.

    A restarted device counts its runs from zero again, so its rate starts anew.
    """

    def __init__(self) -> None:
        self._counts: dict[str, deque[tuple[float, int]]] = defaultdict(deque)

    def update(self, view: View) -> dict[str, float]:
        """Return the rate of each device by name."""
        now = time.monotonic()
        return {device.name: self._rate(self._counts[device.name], now, device.runs) for device in view.devices}

    def _rate(self, counts: deque[tuple[float, int]], now: float, runs: int) -> float:
        if counts and runs < counts[-1][1]:
            counts.clear()
        counts.append((now, runs))
        while len(counts) > 2 and counts[1][0] < now - 1:
            counts.popleft()
        (then, before), (_, after) = counts[0], counts[-1]
        return (after - before) / (now - then) if now > then else 0.0


def _line(view: View, rates: dict[str, float]) -> str:
    devices = "  ".join(f"{device.name} {device.state} {rates[device.name]:.0f}/s" for device in view.devices)
    return f"          {devices}; {_total(view, rates)}"


def _total(view: View, rates: dict[str, float]) -> str:
    return f"{view.answered} runs answered, {sum(rates.values()):.0f}/s, p99 {view.p99_ms:.0f} ms; {view.failed} failed"
