"""Command `nnrt top`: live view of what devices do and for whom."""

import sys
import time
from collections.abc import Collection
from contextlib import nullcontext

import click
from rich.console import RenderableType

from nnrt_client.cli.discovery import default_names, nothing_found_message
from nnrt_client.cli.options import Number, identity_options, json_option, settings_with
from nnrt_client.cli.printing import live, print_json, print_json_line, print_page
from nnrt_client.cli.sampling import Sampler
from nnrt_client.cli.top_tables import device_page, user_page
from nnrt_client.cli.top_view import View
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import addresses_from_environment
from nnrt_hdi.errors import OperationFailed

# Time without a heartbeat after which the client reconnects.
_HEARTBEAT_TIMEOUT_S = 2.0
_LEAST_INTERVAL_S, _LONGEST_INTERVAL_S = 0.1, 3600.0


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@identity_options
@click.option(
    "--by",
    type=click.Choice(["device", "user"]),
    default="device",
    show_default=True,
    help="One line per device, or per user: administrators see all users, others only themselves.",
)
@click.option(
    "--interval",
    type=Number(min=_LEAST_INTERVAL_S, max=_LONGEST_INTERVAL_S),
    default=1.0,
    show_default=True,
    help="Seconds between samples.",
)
@click.option("--once", is_flag=True, help="Show one interval and exit.")
@json_option
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True, max=_LONGEST_INTERVAL_S),
    default=5.0,
    show_default=True,
    help="Seconds that a daemon gets to answer.",
)
def top(addresses: tuple[str, ...], by: str, interval: float, once: bool, as_json: bool, timeout: float) -> None:
    """Show live what the devices at ADDRESS do: HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT.

    Default: the addresses in NNRT_DEVICES, or else all devices found on this host and this network link. The view is
    live until Ctrl-C; if the output is not a terminal, one interval is shown, or with --json one line per interval.
    With --once the exit code is 1 if an address does not answer or no device is found.
    """
    given = addresses or addresses_from_environment()
    settings = settings_with(
        connect_timeout_s=timeout, query_timeout_s=timeout, heartbeat_timeout_s=min(timeout, _HEARTBEAT_TIMEOUT_S)
    )
    names = given or default_names(settings)
    with Runtime(names, settings) as runtime, Sampler(runtime, interval) as sampler:
        if once or not (as_json or sys.stdout.isatty()):
            # Two samples, for each of which a daemon may take up to `timeout`.
            sampler.wait_rounds(2, interval + 2 * timeout)
            view = View.of(sampler, given)
            print_json(view.describe()) if as_json else print_page(_page(view, by))
            if not given and not view.devices:
                raise OperationFailed(nothing_found_message(settings))
            if not view.are_all_answering or view.failures:
                raise SystemExit(1)
            return
        _show(sampler, given, interval, by, as_json=as_json)


def _show(sampler: Sampler, given: Collection[str], interval_s: float, by: str, *, as_json: bool) -> None:
    """Show live pages, or JSON lines, until the user interrupts."""
    sampler.wait_rounds(1, interval_s)
    with nullcontext() if as_json else live() as draw:
        while True:
            view = View.of(sampler, given)
            draw(_page(view, by)) if draw else print_json_line(view.describe())
            time.sleep(interval_s)


def _page(view: View, by: str) -> RenderableType:
    return user_page(view) if by == "user" else device_page(view)
