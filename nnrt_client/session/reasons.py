"""Errors of devices that can't be used: their classification, and one error for all."""

from collections.abc import Iterable, Mapping

from nnrt_client.session.release import TRANSPORT_ERRORS
from nnrt_hdi.errors import (
    ConnectionFailed,
    InvalidFile,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    UnavailableDevice,
)


def is_refused_identity(error: NnrtError) -> bool:
    """Return whether the error means that a daemon refuses this client, or that its certificate or token is invalid."""
    if isinstance(error, ConnectionFailed):
        return bool(error.request_id)  # Only a daemon gives a request id, so it was reached.
    return isinstance(error, InvalidFile | InvalidPath | OperationForbidden)


def is_unreached(error: NnrtError) -> bool:
    """Return whether the error means that a device was not reached. It may be reached later."""
    return isinstance(error, TRANSPORT_ERRORS) and not is_refused_identity(error)


def why_missing(error: NnrtError) -> NnrtError:
    """Return UnavailableDevice for the error of a daemon that was not reached, else a copy of the error."""
    if is_unreached(error):
        return UnavailableDevice(error.message, place=error.place).of_request(error.request_id)
    return error.copy()


def common_class(errors: Iterable[NnrtError]) -> type[NnrtError]:
    """Return the class for an error that summarizes these errors.

    It is their class if all have the same, UnavailableDevice if each device was not reached or refused the client, else
    OperationFailed.
    """
    errors = list(errors)
    kinds = {type(error) for error in errors}
    if len(kinds) == 1:
        return kinds.pop()
    is_access = all(is_unreached(error) or is_refused_identity(error) for error in errors)
    return UnavailableDevice if is_access else OperationFailed


def joined_reasons(reasons: Mapping[str, NnrtError]) -> NnrtError:
    """Return one error for the errors of devices. `reasons` has at least one, by address."""
    if len(reasons) == 1:
        ((address, error),) = reasons.items()
        return error.at(f"device at {address}")
    listed = "; ".join(f"{address}: {error}" for address, error in reasons.items())
    return common_class(reasons.values())(f"no device takes the model: {listed}")
