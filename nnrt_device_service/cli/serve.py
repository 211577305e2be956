"""Command `nnrt-device serve`."""

import gc
import logging
import os
from typing import Any, NoReturn

import click

from nnrt_device_service.device import Device
from nnrt_device_service.host.allocator import keep_freed_memory
from nnrt_device_service.host.claim import claim, device_key
from nnrt_device_service.host.log_handler import set_up_log
from nnrt_device_service.host.readiness import is_supervised, notify, notify_sharing
from nnrt_device_service.host.stop_signals import StopSignals
from nnrt_device_service.reports.reporter import Reporter
from nnrt_device_service.settings import Settings, setting_options
from nnrt_device_service.transport.server import Daemon
from nnrt_hdi.backend import BackendSkipped, DeviceInfo, load_backend, require_description
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import NnrtError, OperationForbidden
from nnrt_hdi.log_lines import unblock_standard_error

_log = logging.getLogger(__name__)


@click.command()
@setting_options
def serve(**values: Any) -> None:
    """Serve one device until SIGTERM.

    Prints one line when it is ready: "listening on" and the addresses.
    """
    settings = Settings(**values)
    keep_freed_memory()
    stop_signals = StopSignals()
    unblock_standard_error()
    log = set_up_log(settings.log_format, is_verbose=settings.verbose)
    try:
        reporter = Reporter(settings, log)
        backend = load_backend(settings.backend, settings.backend_options())
        info = require_description(backend.describe(), settings.backend)
        notify_sharing(is_shared=info.device_type is DeviceType.CPU)
        _claim_accelerator(info, settings)
        device = reporter.device = Device(backend, settings, info)
        log.device = device.info.device_name
        daemon = Daemon(device, settings)
        # Keep the garbage collector from scanning objects that live as long as the daemon.
        gc.freeze()
        addresses = daemon.start(settings.listen)
    except BackendSkipped as reason:
        _refuse(f"backend {settings.backend!r} can't work here: {reason}", reason, settings)
    except NnrtError as error:
        _refuse(str(error), error, settings)
    click.echo(" ".join(["listening on", *addresses]))
    stop_signals.wait()
    if not daemon.drain():
        logging.shutdown()
        os._exit(0)  # A normal exit would wait for the thread of a run that can't be stopped.


def _claim_accelerator(info: DeviceInfo, settings: Settings) -> None:
    """Claim a GPU or accelerator. If another daemon has it, raise OperationForbidden under a supervisor, else warn."""
    if info.device_type not in (DeviceType.GPU, DeviceType.ACCELERATOR):
        return
    try:
        claim(info.device_name, *device_key(settings.backend, settings.backend_options(), os.environ))
    except OperationForbidden as error:
        if is_supervised():
            raise
        _log.warning("%s", error)


def _refuse(reason: str, error: Exception, settings: Settings) -> NoReturn:
    notify(STATUS=reason)
    if settings.log_format != "text":
        _log.critical("the daemon can't serve: %s", reason)
        raise click.exceptions.Exit(1) from error
    raise click.ClickException(reason) from error
