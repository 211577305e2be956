"""Execution providers: the device's, and others that applications may name without effect."""

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from nnrt_client.onnxruntime.errors import BadBinding, InvalidArgument
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import InvalidParameter

_log = logging.getLogger(__name__)

NNRT = "NnrtExecutionProvider"
# Providers that are accepted and never used. They may replace the device's if the environment or
# `set_default_provider_options` names a device.
_UNUSED_PROVIDERS = ("CPUExecutionProvider",)

# Default options of the device's provider.
_defaults: dict[str, Any] = {}

# Options that are fields of `Settings`: certificates, and the application's identity.
_FILES = ("tls_ca", "tls_cert", "tls_key", "token_file")
_SETTINGS = (*_FILES, "tls_server_name")

Provider = str | tuple[str, Mapping[Any, Any]]


class UnknownProvider(BadBinding, ValueError, code=BadBinding.code, status=BadBinding.grpc_status):
    """A list of providers is malformed, or names no provider of a device."""


def get_available_providers() -> list[str]:
    """Return the names of the providers that a session accepts, the device's first."""
    return [NNRT, *_UNUSED_PROVIDERS]


def set_default_provider_options(options: Mapping[str, Any] | None = None) -> None:
    """Set default options of the device's provider, for sessions that are made later.

    If they contain `device`, sessions that name CPUExecutionProvider but not the device's provider run on that device.

    Args:
        options: options by name, which the options of a session override. None removes all defaults.

    Raises:
        InvalidArgument: an option doesn't exist, or its value is invalid.
    """
    global _defaults
    load_options(options or {})
    _defaults = dict(options or {})


def choose_options(
    providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[Any, Any]] | None
) -> tuple[list[str], dict[str, Any]]:
    """Return the names of a session's providers, and the options of the device's provider.

    Args:
        providers: Names, or pairs of a name and options.
        provider_options: Options of each provider, if `providers` are names.

    Returns:
        The names and the options.

    Raises:
        UnknownProvider: No provider stands for a device.
    """
    if providers is None:
        return [NNRT], {**_defaults}
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise UnknownProvider(f"providers are {providers!r}; give a list: [({NNRT!r}, {{'device': HOST:PORT}})]")
    if provider_options is not None:
        if not isinstance(provider_options, Sequence) or len(provider_options) != len(providers):
            raise UnknownProvider("'providers' and 'provider_options' should be the same length if both are given.")
        if any(not isinstance(provider, str) for provider in providers):
            raise UnknownProvider("Only string values for 'providers' are supported if 'provider_options' is given.")
        providers = list(zip(providers, provider_options, strict=True))  # type: ignore[arg-type]
    options: dict[str, dict[str, Any]] = {}
    for provider in providers:
        name, given = (provider, {}) if isinstance(provider, str) else _pair(provider)
        options.setdefault(name, {str(key): value for key, value in given.items()})
    if NNRT not in options:
        device = _defaults.get("device") or ",".join(addresses_from_environment())
        is_known = bool(options.keys() & set(_UNUSED_PROVIDERS))
        if is_known and not device:
            raise UnknownProvider(
                f"the providers are {[*options]}, and no device is known; set {DEVICES_VARIABLE}=HOST:PORT, or call"
                " set_default_provider_options({'device': 'HOST:PORT'})"
            )
        if not is_known:
            raise UnknownProvider(
                f"Unknown Provider Type: {next(iter(options), '(none)')}; this session runs on a device and falls back"
                f" on no other: add {NNRT!r} to the providers, or give none; a list with {_UNUSED_PROVIDERS[0]!r} is"
                f" put on the device of {DEVICES_VARIABLE} or set_default_provider_options"
            )
        _log_device(tuple(options), device)
    for name in options.keys() - {NNRT, *_UNUSED_PROVIDERS}:
        warnings.warn(
            f"Specified provider {name!r} is not in available provider names. Available providers:"
            f" {', '.join(get_available_providers())!r}",
            stacklevel=3,
        )
    return [NNRT, *(name for name in options if name in _UNUSED_PROVIDERS)], {**_defaults, **options.get(NNRT, {})}


@cache
def _log_device(providers: tuple[str, ...], device: str) -> None:
    _log.warning("sessions with the providers %s run on the device %s", list(providers), device)


def load_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], Settings]:
    """Split options of the provider into arguments of `nnrt_client.load` and settings of the connection.

    Options that are None are left out. Settings that are not given come from the environment.

    Returns:
        The arguments of `load`, and the settings.

    Raises:
        InvalidArgument: an option doesn't exist, or its value is invalid.
    """
    if unknown := sorted(set(options) - set(_READERS)):
        raise InvalidArgument(f"{NNRT} has no options {unknown}; there are {sorted(_READERS)}")
    given = {name: _READERS[name](name, value) for name, value in options.items() if value is not None}
    of_settings = {name: given.pop(name) for name in _SETTINGS if name in given}
    try:
        return given, Settings(**of_settings)
    except InvalidParameter as error:
        raise InvalidArgument(f"{NNRT}: {error.message}") from error


def _pair(provider: object) -> tuple[str, Mapping[Any, Any]]:
    match provider:
        case (str(name), Mapping() as options):
            return name, options
    raise UnknownProvider("'providers' values must be either strings or (string, dict) tuples.")


# ---- readers of option values, which may be texts, as in ONNX Runtime


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}; give a text")
    return value


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise InvalidArgument(f"{name} is {value!r}; give the path of a file")
    return os.fspath(value)


def _list(name: str, value: Any) -> list[Any]:
    return value.split(",") if isinstance(value, str) else list(value)


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name} are {value!r}; give them by the names of inputs: {{'sr': 16000}}")
    return dict(value)


def _flag(name: str, value: Any) -> bool:
    known = {"1": True, "true": True, "0": False, "false": False}.get(str(value).lower())
    if known is None:
        raise InvalidArgument(f"{name} is {value!r}; give '1' or '0'")
    return known


def _flag_or_path(name: str, value: Any) -> bool | str:
    is_path = isinstance(value, str | os.PathLike) and str(value).lower() not in ("0", "1", "true", "false")
    return os.fspath(value) if is_path else _flag(name, value)


def _member_of(members: type[PerformanceMode] | type[Priority]) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        if isinstance(value, members):
            return value
        if str(value).upper() not in members.__members__:
            raise InvalidArgument(f"{name} is {value!r}; give one of {[one.lower() for one in members.__members__]}")
        return members[str(value).upper()]

    return read


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "device": _text,
    "cache": _flag_or_path,
    "float16": _flag,
    "performance_mode": _member_of(PerformanceMode),
    "priority": _member_of(Priority),
    "on_death": _text,
    "ways": _list,
    "fallback": _text,
    "constants": _mapping,
    "tls_server_name": _text,
    **dict.fromkeys(_FILES, _path),
}
