"""Command `nnrt models`: what a server of models serves, and how it does."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from nnrt_client.cli.options import Number, identity_options, json_option, settings_with
from nnrt_client.cli.printing import (
    duration_text,
    escaped_text,
    live,
    print_json,
    print_json_line,
    print_page,
    rate_text,
)
from nnrt_client.cli.top_tables import Column, FittingTable

if TYPE_CHECKING:
    from nnrt_client.serving.grpc.client import ServerClient

_LONGEST_S = 3600.0
_COLUMNS = (
    Column("model", 0, is_number=False),
    Column("version", 1),
    Column("state", 2, is_number=False),
    Column("requests/s", 3),
    Column("failed/s", 7),
    Column("under way", 8),
    Column("p50", 6),
    Column("p99", 5),
    Column("devices", 4, is_number=False),
    Column("reason", 9, is_number=False),
)
_STYLES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "bold red"}

# Counters of the versions that take requests, by model and version.
Sample = Mapping[tuple[str, str], Any]


@dataclass(frozen=True, slots=True)
class ModelView:
    """Version of a model. What is known of versions that take requests only is None for others."""

    model: str
    version: str
    state: str
    reason: str
    devices: Sequence[str] = ()
    under_way: int | None = None
    requests_per_s: float | None = None
    failed_per_s: float | None = None
    # Of the latest requests; None before the first, too.
    p50_s: float | None = None
    p99_s: float | None = None


class Watched:
    """Server that is asked again and again. Rates are those between two calls of `look`."""

    def __init__(self, client: "ServerClient") -> None:
        """Ask the server for the first time."""
        self._client = client
        self._before, self._at = self._sample()

    def look(self) -> Sequence[ModelView]:
        """Ask the server, and return all versions of all models."""
        index, (now, at) = self._client.index(), self._sample()
        passed_s = at - self._at
        views = []
        for one in index:
            key = one.name, one.version
            if key in now:
                views.append(_view(one, now[key], self._before.get(key), passed_s))
            else:
                views.append(ModelView(one.name, one.version, one.state, one.reason))
        self._before, self._at = now, at
        return views

    def _sample(self) -> tuple[Sample, float]:
        return {(one.name, one.version): one for one in self._client.statistics()}, time.monotonic()


@click.command()
@click.argument("address", default="127.0.0.1:8001")
@identity_options
@click.option(
    "--interval",
    type=Number(min=0.1, max=_LONGEST_S),
    default=1.0,
    show_default=True,
    help="Seconds over which rates are measured.",
)
@click.option("--watch", is_flag=True, help="Show it live, until Ctrl-C.")
@json_option
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True, max=_LONGEST_S),
    default=5.0,
    show_default=True,
    help="Seconds that the server gets to answer.",
)
def models(address: str, interval: float, watch: bool, as_json: bool, timeout: float) -> None:
    """Show the models that the server at ADDRESS serves: where `nnrt serve` has its face for gRPC.

    If the server has an access file, it needs the role observe. With --watch and --json there is a line per interval.
    The exit code is 1 if the server does not answer.
    """
    from nnrt_client.serving.grpc.client import ServerClient  # Not at the top: other commands would wait for it.

    with ServerClient(address, settings_with(query_timeout_s=timeout)) as client:
        watched = Watched(client)
        time.sleep(interval)
        if not watch:
            views = watched.look()
            print_json([asdict(view) for view in views]) if as_json else print_page(_page(views))
        elif as_json or not sys.stdout.isatty():
            while True:
                views = watched.look()
                print_json_line([asdict(view) for view in views]) if as_json else print_page(_page(views))
                time.sleep(interval)
        else:
            with live() as draw:
                while True:
                    draw(_page(watched.look()))
                    time.sleep(interval)


def _view(entry: Any, now: Any, before: Any, passed_s: float) -> ModelView:
    """Return the view of a version from its line of the index, and its counters now and before, if it had any."""
    requests, failed = (
        max(0, getattr(now.inference_stats, name).count - getattr(before.inference_stats, name).count) if before else 0
        for name in ("success", "fail")
    )
    has_requests = now.p50_ns > 0
    return ModelView(
        entry.name,
        entry.version,
        entry.state,
        entry.reason,
        tuple(now.devices),
        now.under_way,
        requests / passed_s,
        failed / passed_s,
        now.p50_ns / 1e9 if has_requests else None,
        now.p99_ns / 1e9 if has_requests else None,
    )


def _page(views: Sequence[ModelView]) -> FittingTable:
    return FittingTable(_COLUMNS, [_row(view) for view in views])


def _row(view: ModelView) -> Sequence[Text]:
    return (
        escaped_text(view.model),
        escaped_text(view.version),
        Text(view.state, _STYLES.get(view.state, "")),
        rate_text(view.requests_per_s),
        rate_text(view.failed_per_s, "red"),
        Text("-" if view.under_way is None else str(view.under_way)),
        duration_text(view.p50_s),
        duration_text(view.p99_s),
        escaped_text(", ".join(view.devices) or "-"),
        escaped_text(view.reason),
    )
