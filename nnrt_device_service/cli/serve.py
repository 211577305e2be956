"""The command `nnrt-device serve`."""

import gc
import logging
import os
import sys
from typing import Any, NoReturn

import click

from nnrt_device_service.core.device import Device
from nnrt_device_service.host.allocator import keep_freed_memory
from nnrt_device_service.host.readiness import notify
from nnrt_device_service.host.stop_signals import StopSignals
from nnrt_device_service.settings import Settings, setting_options
from nnrt_device_service.transport.server import Daemon
from nnrt_hdi.backend import BackendSkipped, load_backend
from nnrt_hdi.errors import NnrtError


@click.command()
@setting_options
def serve(**values: Any) -> None:
    """Serve one device until SIGTERM.

    When it is ready it prints one line: "listening on" and the addresses.
    """
    settings = Settings(**values)
    keep_freed_memory()
    stop_signals = StopSignals()
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
        _refuse(f"backend {settings.backend!r} can't work here: {reason}", reason)
    except NnrtError as error:
        _refuse(str(error), error)
    click.echo(" ".join(["listening on", *addresses]))
    stop_signals.wait()
    if not daemon.drain():
        logging.shutdown()
        os._exit(0)  # The interpreter would wait for the thread of a run that can't be stopped.


def _refuse(reason: str, error: Exception) -> NoReturn:
    notify(STATUS=reason)
    raise click.ClickException(reason) from error
