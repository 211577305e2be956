"""Pages of `nnrt top`: tables with one line per device or per user."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nnrt_client.cli.printing import duration_text, escaped_text, format_bytes, rate_text
from nnrt_client.cli.telemetry import format_telemetry
from nnrt_client.cli.top_view import DRAINING, NO_SESSION, NOT_ASKED, DeviceView, UserView, View
from nnrt_client.cli.work import Work
from nnrt_hdi.enums import DeviceStatus

_BAR_WIDTH = 10
_TAKES_NO_WORK = "bold red"
_STYLES = {
    DeviceStatus.AVAILABLE.name: "green",
    DeviceStatus.BUSY.name: "green",
    DRAINING: "yellow",
    NOT_ASKED: "dim",
    NO_SESSION: _TAKES_NO_WORK,
}
_UNKNOWN = "-"


class Column(NamedTuple):
    """Column of a table. A table that is too wide drops columns, those of the highest rank first."""

    title: str
    rank: int
    is_number: bool = True


class FittingTable:
    """Table that shows as many of its columns as fit the terminal. Its cells must already be escaped."""

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
    Column("util", 2),
    Column("", 12, is_number=False),
    Column("queued", 3),
    Column("runs/s", 4),
    Column("failed/s", 7),
    Column("refused/s", 9),
    Column("mean", 6),
    Column("p99", 5),
    Column("memory", 8),
    Column("clients", 10),
    Column("rows/batch", 13),
    Column("address", 11, is_number=False),
)
# Shown only if a device reports them. The titles are keys of `format_telemetry`.
_MEASURED_COLUMNS = (
    Column("device util", 11),
    Column("temp", 11),
    Column("power", 11),
    Column("device memory", 12),
    Column("clock", 13),
)


def device_page(view: View) -> RenderableType:
    """Return a page with one line per device, its measured figures, and why some devices take no work."""
    figures = [format_telemetry(device.telemetry) for device in view.devices]
    reported = [column for column in _MEASURED_COLUMNS if any(column.title in each for each in figures)]
    rows = [
        (*_device_row(device), *(escaped_text(each.get(column.title, _UNKNOWN)) for column in reported))
        for device, each in zip(view.devices, figures, strict=True)
    ]
    table = FittingTable((*_DEVICE_COLUMNS, *reported), rows)
    return Group(_headline(view.devices), "", table, *_notes(view))


def _device_row(device: DeviceView) -> Sequence[RenderableType]:
    load = device.load
    return (
        escaped_text(device.name or device.address),
        Text(device.status, _STYLES.get(device.status, _TAKES_NO_WORK)),
        *_share(device.busy_share),
        escaped_text(str(load.queued) if load else _UNKNOWN),
        *_rates(device.work),
        duration_text(device.work.p99_s if device.work else None),
        escaped_text(_of_limit(sum(load.held_bytes.values()), load.held_limit_bytes) if load else _UNKNOWN),
        escaped_text(str(load.sessions) if load else _UNKNOWN),
        escaped_text(f"{load.batches.mean_rows:.1f}" if load and load.batches.count else _UNKNOWN),
        escaped_text(device.address),
    )


_USER_COLUMNS = (
    Column("user", 0, is_number=False),
    Column("share", 1),
    Column("", 12, is_number=False),
    Column("runs/s", 2),
    Column("failed/s", 7),
    Column("refused/s", 6),
    Column("mean", 8),
    Column("in/s", 9),
    Column("out/s", 10),
    Column("device time", 3),
    Column("total runs", 4),
    Column("memory", 5),
    Column("clients", 11),
)


def user_page(view: View) -> RenderableType:
    """Return a page with one line per user.

    A user's share and rates cover the last interval; device time and total runs count from the daemons' starts.
    """
    table = FittingTable(_USER_COLUMNS, [_user_row(user) for user in view.users])
    return Group(_headline(view.devices), "", table, *_notes(view))


def _user_row(user: UserView) -> Sequence[RenderableType]:
    work, since_start = user.work, user.since_start
    return (
        escaped_text(user.identity or "(others)"),
        *_share(user.share),
        *_rates(work),
        escaped_text(format_bytes(work.per_s(work.counted.in_bytes))),
        escaped_text(format_bytes(work.per_s(work.counted.out_bytes))),
        escaped_text(f"{since_start.run_s:,.1f} s"),
        escaped_text(f"{sum(since_start.runs.values()):,}"),
        escaped_text(format_bytes(since_start.held_bytes)),
        escaped_text(str(since_start.sessions)),
    )


def _share(share: float | None) -> tuple[RenderableType, RenderableType]:
    """Return a fraction as a percentage and as a bar."""
    return (
        (Text(_UNKNOWN), "") if share is None else (Text(f"{100 * share:.0f} %"), ProgressBar(1.0, share, _BAR_WIDTH))
    )


def _rates(work: Work | None) -> Sequence[Text]:
    """Return runs, failures and refusals per second, and the mean time of a run."""
    if work is None:
        return [Text(_UNKNOWN)] * 4
    return (
        rate_text(work.per_s(work.runs)),
        rate_text(work.per_s(work.failures), "red"),
        rate_text(work.per_s(work.refusals), "yellow"),
        duration_text(work.mean_s),
    )


def _headline(devices: Sequence[DeviceView]) -> Text:
    ready = sum(device.is_answering and not device.why for device in devices)
    loads = [device.load for device in devices if device.load]
    runs_per_s = sum(device.work.per_s(device.work.runs) for device in devices if device.work)
    return Text(
        f"{time.strftime('%H:%M:%S')}  {ready} of {len(devices)} devices take work; {rate_text(runs_per_s)} runs/s,"
        f" {sum(load.running for load in loads)} running, {sum(load.queued for load in loads)} queued"
    )


def _notes(view: View) -> Sequence[RenderableType]:
    """Return notes: names without addresses, devices that take no work, and devices that show only this user."""
    notes = [escaped_text(f"{name}: {why}") for name, why in view.failures.items()]
    notes += [
        escaped_text(_with_name(device.name or device.address, device.why)) for device in view.devices if device.why
    ]
    own = [device.name or device.address for device in view.devices if not device.sees_all]
    if own:
        notes.append(escaped_text(f"only your own runs are counted: you don't administer {', '.join(own)}"))
    return ("", *notes) if notes else ()


def _with_name(name: str, why: str) -> str:
    return why if why.startswith(name) else f"{name}: {why}"


def _of_limit(size_bytes: int, limit_bytes: int) -> str:
    limit = f" of {format_bytes(limit_bytes)}" if limit_bytes else ""
    return f"{format_bytes(size_bytes)}{limit}"
