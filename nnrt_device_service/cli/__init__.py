"""The command `nnrt-device`: serve a device, list the backends, look after the model store."""

import gc
import logging
import os
import signal
import sys
from typing import Any

import click

from nnrt_device_service.cli.cache import cache
from nnrt_device_service.cli.keys import keys
from nnrt_device_service.cli.table import new_table, print_table
from nnrt_device_service.core.device import Device
from nnrt_device_service.host.allocator import keep_freed_memory
from nnrt_device_service.settings import Settings, setting_options
from nnrt_device_service.transport.server import Daemon
from nnrt_hdi import __version__
from nnrt_hdi.backend import BackendSkipped, backend_states, load_backend
from nnrt_hdi.errors import NnrtError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nnrt-device")
def main() -> None:
    """Offer an accelerator to NNRt clients on this host or across a network."""


main.add_command(cache)
main.add_command(keys)


@main.command()
@setting_options
def serve(**values: Any) -> None:
    """Serve one device until SIGTERM.

    When it is ready it prints one line: "listening on" and the addresses.
    """
    settings = Settings(**values)
    keep_freed_memory()
    signal.pthread_sigmask(
        signal.SIG_BLOCK, _STOP_SIGNALS
    )  # Before any thread starts, so that only `sigwait` gets them.
    logging.basicConfig(
        level=logging.DEBUG if settings.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        device = Device(load_backend(settings.backend, settings.backend_options()), settings)
        daemon = Daemon(device, settings)
        # No collection of garbage looks again at what stays as long as the daemon.
        gc.freeze()
        addresses = daemon.start(settings.listen)
    except BackendSkipped as reason:
        raise click.ClickException(f"backend {settings.backend!r} can't work here: {reason}") from reason
    except NnrtError as error:
        raise click.ClickException(str(error)) from error
    click.echo(" ".join(["listening on", *addresses]))
    signal.sigwait(_STOP_SIGNALS)
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)  # A second signal ends the daemon at once.
    if not daemon.drain():
        logging.shutdown()
        os._exit(0)  # The interpreter would wait for the thread of a run that can't be stopped.


@main.command()
def backends() -> None:
    """List the installed backends and whether they work here."""
    table = new_table()
    for column in ("backend", "state", "device", "type", "version"):
        table.add_column(column, no_wrap=column in ("backend", "state"))
    for state in backend_states():
        if state.info:
            info = state.info
            device = f"{info.device_name} by {info.vendor_name}"
            table.add_row(state.name, "available", device, info.device_type.name, info.backend_version)
        elif state.skipped:
            table.add_row(state.name, "skipped", state.skipped)
        else:
            table.add_row(state.name, "broken", state.broken.strip().splitlines()[-1])
            click.echo(state.broken, err=True)
    print_table(table)


_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
