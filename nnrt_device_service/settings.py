"""Every setting of a daemon: its flag, environment variable, default and meaning, said once."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import click

MIB = 1 << 20
GIB = 1 << 30

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _setting(default: Any, help: str, least: float | None = None) -> Any:
    return field(default=default, metadata={"help": help, "least": least})


@dataclass(frozen=True, slots=True)
class Settings:
    """How `nnrt-device serve` runs. Flag `--session-bytes`, else NNRT_DEVICE_SESSION_BYTES, else the default."""

    backend: str = _setting("reference", "Backend that serves the device; see `nnrt-device backends`.")
    listen: tuple[str, ...] = _setting(
        ("127.0.0.1:0",),
        "Address to listen on, HOST:PORT (port 0: any free one) or unix:PATH. May be repeated.",
    )
    name: str = _setting("", "Name of the device instead of the backend's; must be unique in a fleet.")
    option: tuple[str, ...] = _setting((), "NAME=VALUE for the backend. May be repeated.")
    heartbeat_timeout_s: float = _setting(10.0, "Seconds of silence after which a client counts as dead.", 0.1)
    drain_timeout_s: float = _setting(30.0, "Seconds that runs in flight get to finish after SIGTERM.", 0.0)
    concurrent_runs: int = _setting(1, "Runs on the device at a time; others wait their turn.", 1)
    max_sessions: int = _setting(64, "Clients at a time.", 1)
    session_models: int = _setting(64, "Prepared models per client.", 1)
    session_streams: int = _setting(8, "Open run streams per client.", 1)
    session_bytes: int = _setting(8 * GIB, "Bytes of constants and buffers per client.", 0)
    message_bytes: int = _setting(64 * MIB, "Longest message in bytes.", 64 * 1024)
    tensor_bytes: int = _setting(GIB, "Largest tensor in bytes that a run may make.", 1)
    verbose: bool = _setting(False, "Log every call.")


def setting_options(function: FunctionT) -> FunctionT:
    """A click command that takes every setting as an option."""
    for entry in reversed(fields(Settings)):
        multiple = isinstance(entry.default, tuple)
        least = entry.metadata["least"]
        if least is None:
            kind: Any = None if multiple else type(entry.default)
        else:
            kind = (click.IntRange if isinstance(entry.default, int) else click.FloatRange)(min=least)
        function = click.option(
            "--" + entry.name.replace("_", "-"),
            entry.name,
            default=entry.default,
            multiple=multiple,
            is_flag=entry.default is False,
            type=None if entry.default is False else kind,
            envvar=f"NNRT_DEVICE_{entry.name.upper()}",
            show_envvar=True,
            show_default=True,
            help=entry.metadata["help"],
        )(function)
    return function
