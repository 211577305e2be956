"""How a daemon ends that can't go on. Whoever supervises it starts it again."""

import logging
import os
from enum import IntEnum
from typing import NoReturn

from nnrt_device_service.host.readiness import notify

_log = logging.getLogger(__name__)


class ExitCode(IntEnum):
    """Why a daemon ended itself, for its supervisor."""

    NOT_SERVING = 70
    """gRPC answers no calls any more (EX_SOFTWARE of sysexits.h)."""
    DAMAGED = 74
    """A file that it has mapped was cut short, and models compute with what is left (EX_IOERR)."""
    STUCK = 75
    """A run on the device can't be stopped (EX_TEMPFAIL: what is asked again later may well work)."""


def exit_at_once(code: ExitCode, reason: str) -> NoReturn:
    """End the process without waiting for any thread."""
    _log.critical("the daemon ends itself with code %d: %s", code, reason)
    notify(STATUS=reason, EXIT_STATUS=int(code))
    logging.shutdown()
    os._exit(code)
