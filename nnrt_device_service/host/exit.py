"""End of a daemon that can't go on; its supervisor restarts it."""

import logging
import os
from enum import IntEnum
from typing import NoReturn

from nnrt_device_service.host.readiness import notify

_log = logging.getLogger(__name__)


class ExitCode(IntEnum):
    """Exit code by which a daemon tells its supervisor why it ended itself."""

    LOST = 69
    """The device can compute no more in this process (EX_UNAVAILABLE)."""
    NOT_SERVING = 70
    """gRPC no longer answers calls (EX_SOFTWARE of sysexits.h)."""
    DAMAGED = 74
    """A mapped file was truncated, so models would compute with wrong data (EX_IOERR)."""
    STUCK = 75
    """A run on the device can't be stopped (EX_TEMPFAIL: a later attempt may succeed)."""


def exit_at_once(code: ExitCode, reason: str) -> NoReturn:
    """Log the reason, notify the supervisor and end the process without waiting for any thread."""
    _log.critical("the daemon ends itself with code %d: %s", code, reason)
    notify(STATUS=reason, EXIT_STATUS=int(code))
    logging.shutdown()
    os._exit(code)
