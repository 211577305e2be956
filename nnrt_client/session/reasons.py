"""Reasons why devices can't be used, and the error that joins them."""

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
    """Return whether a daemon refuses this client, or the client's own certificate or token can't be used."""
    if isinstance(error, ConnectionFailed):
        return bool(error.request_id)  # Only a daemon gives a request id, so it was reached.
    return isinstance(error, InvalidFile | InvalidPath | OperationForbidden)


def is_unreached(error: NnrtError) -> bool:
    """Return whether the error means that a device was not reached, and so may be reached later."""
    return isinstance(error, TRANSPORT_ERRORS) and not is_refused_identity(error)


def why_missing(error: NnrtError) -> NnrtError:
    """Turn the error of a daemon that was not reached into UnavailableDevice; copy any other."""
    if is_unreached(error):
        return UnavailableDevice(error.message, place=error.place).of_request(error.request_id)
    return error.copy()


def common_class(errors: Iterable[NnrtError]) -> type[NnrtError]:
    """Return the class of an error that stands for all these errors.

    It is their class if they have only one, UnavailableDevice if each device was not reached or refused the client,
    else OperationFailed.
    """
    errors = list(errors)
    kinds = {type(error) for error in errors}
    if len(kinds) == 1:
        return kinds.pop()
    is_access = all(is_unreached(error) or is_refused_identity(error) for error in errors)
    return UnavailableDevice if is_access else OperationFailed


def joined_reasons(reasons: Mapping[str, NnrtError]) -> NnrtError:
    """Join the errors of devices, at least one, by address, in one error."""
    if len(reasons) == 1:
        ((address, error),) = reasons.items()
        return error.at(f"device at {address}")
    listed = "; ".join(f"{address}: {error}" for address, error in reasons.items())
    return common_class(reasons.values())(f"no device takes the model: {listed}")
