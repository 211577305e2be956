"""The pages of `nnrt top`."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nnrt_client.cli.printing import format_bytes
from nnrt_client.cli.top_view import DRAINING, NO_SESSION, NOT_ASKED, DeviceView, UserView, View
from nnrt_client.cli.work import Work
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.text import escape_for_terminal

_BAR_WIDTH = 10
_OUT = "bold red"
_STYLES = {
    DeviceStatus.AVAILABLE.name: "green",
    DeviceStatus.BUSY.name: "green",
    DRAINING: "yellow",
    NOT_ASKED: "dim",
    NO_SESSION: _OUT,
}
_UNKNOWN = "-"


class Column(NamedTuple):
    """A column. Where not all fit, those of the highest rank are left out."""

    title: str
    rank: int
    is_number: bool = True


class FittingTable:
    """A table with as many of its columns as fit where it is drawn. Its texts are safe for a terminal."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[RenderableType]]) -> None:
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(range(len(self._columns)))
        table = self._table(shown)
        unbounded = options.update(max_width=1 << 16)
        while len(shown) > 1 and Measurement.get(console, unbounded, table).maximum > options.max_width:
            shown.remove(max(shown, key=lambda at: self._columns[at].rank))
            table = self._table(shown)
        yield table

    def _table(self, shown: Sequence[int]) -> Table:
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
        for at in shown:
            column = self._columns[at]
            table.add_column(column.title, justify="right" if column.is_number else "left", no_wrap=True)
        for row in self._rows:
            table.add_row(*(row[at] for at in shown))
        return table


_DEVICE_COLUMNS = (
    Column("device", 0, is_number=False),
    Column("state", 1, is_number=False),
    Column("load", 2),
    Column("", 11, is_number=False),
    Column("queued", 3),
    Column("runs/s", 4),
    Column("failed/s", 6),
    Column("refused/s", 9),
    Column("on device", 5),
    Column("memory", 7),
    Column("clients", 8),
    Column("address", 10, is_number=False),
)


def device_page(view: View) -> RenderableType:
    """A line for each device, and why those that take no work don't."""
    table = FittingTable(_DEVICE_COLUMNS, [_device_row(device) for device in view.devices])
    return Group(_headline(view.devices), "", table, *_notes(view.devices))


def _device_row(device: DeviceView) -> Sequence[RenderableType]:
    state = device.answer.state if device.is_answering and device.answer else None
    work = device.work
    return (
        _text(device.name or device.address),
        Text(device.status, _STYLES.get(device.status, _OUT)),
        _text(f"{100 * work.on_device:.0f} %" if work else _UNKNOWN),
        ProgressBar(1.0, min(work.on_device, 1.0), _BAR_WIDTH) if work else "",
        _text(str(state.queued) if state else _UNKNOWN),
        *_rates(work),
        _text(format_bytes(state.held_bytes) if state else _UNKNOWN),
        _text(str(state.sessions) if state else _UNKNOWN),
        _text(device.address),
    )


_USER_COLUMNS = (
    Column("user", 0, is_number=False),
    Column("share", 1),
    Column("", 10, is_number=False),
    Column("runs/s", 2),
    Column("failed/s", 5),
    Column("refused/s", 6),
    Column("on device", 7),
    Column("device time", 3),
    Column("runs", 4),
    Column("memory", 9),
    Column("clients", 8),
)


def user_page(view: View) -> RenderableType:
    """A line for each user, whose share is that of the devices' time since the look before."""
    table = FittingTable(_USER_COLUMNS, [_user_row(user) for user in view.users])
    return Group(_headline(view.devices), "", table, *_notes(view.devices))


def _user_row(user: UserView) -> Sequence[RenderableType]:
    since_start = user.since_start
    return (
        _text(user.identity or "(others)"),
        _text(f"{100 * user.share:.0f} %"),
        ProgressBar(1.0, user.share, _BAR_WIDTH),
        *_rates(user.work),
        _text(f"{since_start.run_s:,.1f} s"),
        _text(f"{sum(since_start.runs.values()):,}"),
        _text(format_bytes(since_start.held_bytes)),
        _text(str(since_start.sessions)),
    )


def _rates(work: Work | None) -> Iterable[Text]:
    """Runs, failures and refusals per second, and how long a run is on the device."""
    if work is None:
        return [Text(_UNKNOWN)] * 4
    failures, refusals = (work.per_s(count) for count in (work.failures, work.refusals))
    return (
        Text(_rate(work.per_s(work.runs))),
        Text(_rate(failures), "red" if failures else ""),
        Text(_rate(refusals), "yellow" if refusals else ""),
        Text(_UNKNOWN if work.mean_s is None else _duration(work.mean_s)),
    )


def _headline(devices: Sequence[DeviceView]) -> Text:
    ready = sum(not device.why and device.is_answering for device in devices)
    states = [device.answer.state for device in devices if device.is_answering and device.answer]
    works = [device.work for device in devices if device.work]
    runs_per_s = sum(work.per_s(work.runs) for work in works)
    return Text(
        f"{time.strftime('%H:%M:%S')}  {ready} of {len(devices)} devices take work; {_rate(runs_per_s)} runs/s, "
        f"{sum(state.running for state in states)} running, {sum(state.queued for state in states)} queued"
    )


def _notes(devices: Sequence[DeviceView]) -> list[RenderableType]:
    out = [
        Text(escape_for_terminal(f"{device.name or device.address}: {device.why}")) for device in devices if device.why
    ]
    partial = [device.name or device.address for device in devices if device.work and not device.sees_all]
    if partial:
        said = f"only your own runs count here, for you don't administer: {', '.join(partial)}"
        out.append(Text(escape_for_terminal(said), "dim"))
    return ["", *out] if out else []


def _text(text: str) -> Text:
    return Text(escape_for_terminal(text))


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}"


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
