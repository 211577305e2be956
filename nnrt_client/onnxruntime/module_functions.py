"""Functions of ONNX Runtime's module that applications call."""

import logging

from nnrt_client.onnxruntime.errors import BadBinding, NotSupported
from nnrt_client.onnxruntime.providers import get_available_providers
from nnrt_hdi import __version__

# ONNX Runtime's severities, as Python's levels.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_all_providers() -> list[str]:
    """Name the providers that a session takes."""
    return get_available_providers()


def get_device() -> str:
    """Name the kind of device that computes: one of NNRt."""
    return "NNRT"


def get_version_string() -> str:
    """Give the version of NNRt."""
    return __version__


def get_build_info() -> str:
    """Say whose module this is."""
    return f"nnrt_client.onnxruntime {__version__}"


def set_default_logger_severity(severity: int) -> None:
    """Have NNRt's loggers pass what is at least as severe: 0 is verbose, 4 fatal."""
    if severity not in range(len(_LEVELS)):
        raise BadBinding(f"Invalid severity: {severity}; use 0..{len(_LEVELS) - 1}")
    logging.getLogger("nnrt_client").setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: there are no degrees of verbosity."""


def set_seed(seed: int) -> None:
    """Refuse: random numbers are the device's."""
    raise NotSupported(f"set_seed({seed}): random numbers are made on the device; give them as an input")


def enable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""
