"""Why devices can't be used, and the error that comes of it."""

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
    """Tell if a daemon does not let this client in, or what says who the client is can't be used."""
    if isinstance(error, ConnectionFailed):
        return bool(error.request_id)  # A daemon told it, so it was reached.
    return isinstance(error, InvalidFile | InvalidPath | OperationForbidden)


def is_unreached(error: NnrtError) -> bool:
    """Tell if the error says that a device was not reached. It may be reached later."""
    return isinstance(error, TRANSPORT_ERRORS) and not is_refused_identity(error)


def why_missing(error: NnrtError) -> NnrtError:
    """Turn the error of a daemon that was not reached into UnavailableDevice; copy any other."""
    if is_unreached(error):
        return UnavailableDevice(error.message, place=error.place).of_request(error.request_id)
    return error.copy()


def kind_of(errors: Iterable[NnrtError]) -> type[NnrtError]:
    """Choose the class of an error that has all of these reasons.

    That of the only kind; UnavailableDevice where no device decided anything; else OperationFailed.
    """
    errors = list(errors)
    kinds = {type(error) for error in errors}
    if len(kinds) == 1:
        return kinds.pop()
    is_access = all(is_unreached(error) or is_refused_identity(error) for error in errors)
    return UnavailableDevice if is_access else OperationFailed


def joined_reasons(reasons: Mapping[str, NnrtError]) -> NnrtError:
    """Join the reasons of devices, by address, in one error. There is one at least."""
    if len(reasons) == 1:
        ((address, error),) = reasons.items()
        return error.at(f"device at {address}")
    told = "; ".join(f"{address}: {error}" for address, error in reasons.items())
    return kind_of(reasons.values())(f"no device takes the model: {told}")
