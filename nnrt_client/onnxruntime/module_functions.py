"""Functions of ONNX Runtime's module that applications call."""

import logging

from nnrt_client.onnxruntime.errors import BadBinding, NotSupported
from nnrt_client.onnxruntime.providers import get_available_providers
from nnrt_hdi import __version__

# Python's logging levels for ONNX Runtime's severities 0 to 4.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_all_providers() -> list[str]:
    """Return the names of the providers that a session accepts."""
    return get_available_providers()


def get_device() -> str:
    """Return the kind of device that computes: NNRT."""
    return "NNRT"


def get_version_string() -> str:
    """Return the version of the package nnrt."""
    return __version__


def get_build_info() -> str:
    """Return the name and version of this package."""
    return f"nnrt_client.onnxruntime {__version__}"


def set_default_logger_severity(severity: int) -> None:
    """Set the level of NNRt's loggers: 0 is verbose, 4 is fatal. Raise BadBinding for other severities."""
    if severity not in range(len(_LEVELS)):
        raise BadBinding(f"Invalid severity: {severity}; use 0..{len(_LEVELS) - 1}")
    logging.getLogger("nnrt_client").setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: log records have no verbosity."""


def set_seed(seed: int) -> None:
    """Raise NotSupported: the device makes random numbers."""
    raise NotSupported(f"set_seed({seed}): random numbers are made on the device; give them as an input")


def enable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""
