"""Arguments and options that several commands share."""

import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from nnrt_client.build.options import Options
from nnrt_client.build.way import Way
from nnrt_client.model_session.opened_model import OpenedModel, open_model
from nnrt_client.model_session.partition.fallback import CPU, SMALLEST_PART, Fallback
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import (
    DEVICES_VARIABLE,
    TLS_CA_VARIABLE,
    TLS_CERT_VARIABLE,
    TLS_KEY_VARIABLE,
    TLS_SERVER_NAME_VARIABLE,
    TOKEN_FILE_VARIABLE,
    Settings,
    addresses_to_ask_for,
)
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import PerformanceMode
from nnrt_hdi.errors import InvalidParameter

# Prefix of the settings' names in a command's context.
_SETTING = "nnrt_client.settings."
_SHAPE = re.compile(r"[0-9]{1,18}(,[0-9]{1,18})*")

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class FixedInputs:
    """Values of --shape and --constant for the inputs of a model."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def with_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> "FixedInputs":
        """Return a copy with more shapes."""
        return FixedInputs({**self.shapes, **shapes}, self.constants)


Pairs = tuple[tuple[str, Any], ...]


class Number(click.FloatRange):
    """Click type of a finite number in a range; FloatRange itself accepts `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Named(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # Generic from click 8.4 on.
    """Click type of NAME=VALUE, in which neither may be empty."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, _, given = value.partition("=")
        if not name or not given:
            self.fail(f"{value!r} is not {self.name}.", param, ctx)
        return self.read(name, given, param, ctx)

    def read(self, name: str, given: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name and the value, converted to the option's type."""
        return name, given


class Extension(Named):
    """Click type of NAME=VALUE for a backend's extension."""

    def read(self, name: str, given: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return name, given.encode(errors="surrogateescape")


class Shape(Named):
    """Click type of NAME=1,3,224,224, the shape of an input."""

    name = "NAME=DIM,..."

    def read(self, name: str, given: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not _SHAPE.fullmatch(given):
            self.fail(f"{given!r} is no shape; use whole numbers separated by commas.", param, ctx)
        return name, tuple(int(dim) for dim in given.split(","))


class ConstantValue(Named):
    """Click type of NAME=16000, the constant value of an input."""

    name = "NAME=VALUE"

    def read(self, name: str, given: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        for text in (given, f"[{given}]"):
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
                if _is_tensor(value):
                    return name, value
        return self.fail(f"{given!r} is no number; use 16000, 0.5, true, 1,2,3 or [[1, 2], [3, 4]].", param, ctx)


def _is_tensor(value: Any) -> bool:
    """Return whether a JSON value is a number, a boolean, or nested lists of these."""
    if isinstance(value, list):
        return all(_is_tensor(item) for item in value)
    return isinstance(value, bool | int | float)


POSITIVE = Number(min=0, min_open=True)
_SECONDS = Number(min=0, min_open=True, max=threading.TIMEOUT_MAX)

model_argument = click.argument("model", type=click.Path(path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
input_option = click.option(
    "--input",
    "given",
    multiple=True,
    metavar="NAME=FILE",
    help="An .npy or .png file for an input, or an .npz file with several, without NAME=. May be repeated.",
)
way_option = click.option(
    "--way",
    "ways",
    type=click.Choice([way.value for way in Way]),
    multiple=True,
    callback=lambda _, __, given: [Way(way) for way in given],
    help="How the device gets an ONNX file: the first way in this order that works. May be repeated.",
)
FALLBACK_HELP = "If no other way works for an ONNX file, run on this host the operators that the device doesn't run."
build_timeout_option = click.option(
    "--timeout", type=_SECONDS, default=600.0, show_default=True, help="Time limit for compiling, in seconds."
)
cache_option = click.option(
    "--cache/--no-cache", default=True, show_default=True, help="Cache the compiled model for the next time."
)
seed_option = click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")


def mermaid_option(what: str) -> Callable[[CommandT], CommandT]:
    """Return the option --mermaid with `what` as its help."""
    return click.option("--mermaid", type=click.Path(path_type=Path), help=what)


def fixed_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --shape and --constant to a command, which receives them as `fixed`."""

    @click.option(
        "--shape",
        "shapes",
        type=Shape(),
        multiple=True,
        help="Shape of an input with unknown dimensions. May be repeated.",
    )
    @click.option(
        "--constant",
        "constants",
        type=ConstantValue(),
        multiple=True,
        help="Constant value of an input: 16000, true, 1,2,3 or JSON. May be repeated.",
    )
    @wraps(command)
    def wrapped(*, shapes: Pairs, constants: Pairs, **others: Any) -> None:
        for option, pairs in (("--shape", shapes), ("--constant", constants)):
            if len(dict(pairs)) < len(pairs):
                raise click.UsageError(f"{option} names {', '.join(name for name, _ in pairs)}; give each once")
        command(fixed=FixedInputs(dict(shapes), dict(constants)), **others)

    return wrapped


def fallback_options(text: str) -> Callable[[CommandT], Callable[..., None]]:
    """Add --fallback and --smallest-part to a command, which receives them as `fallback`."""

    def decorate(command: CommandT) -> Callable[..., None]:
        @click.option("--fallback", "host", type=click.Choice([CPU]), help=text)
        @click.option(
            "--smallest-part",
            type=click.IntRange(min=1),
            default=SMALLEST_PART,
            show_default=True,
            help="Minimum number of operators in a part for the device, unless one is heavy, such as a convolution.",
        )
        @wraps(command)
        def wrapped(*, host: str | None, smallest_part: int, **others: Any) -> None:
            given = click.get_current_context().get_parameter_source("smallest_part")
            if given is not ParameterSource.DEFAULT and not host:
                raise click.UsageError(f"--smallest-part is about parts; give --fallback {CPU} with it")
            command(fallback=Fallback(host, smallest_part) if host else None, **others)

        return wrapped

    return decorate


def run_timeout_option(seconds: float) -> Callable[[CommandT], CommandT]:
    """Add --run-timeout to a command, which receives it as `run_timeout_ms`."""
    return click.option(
        "--run-timeout",
        "run_timeout_ms",
        type=_SECONDS,
        default=seconds,
        show_default=True,
        callback=lambda _, __, given: int(given * 1e3) or 1,
        help="Time limit of a run, in seconds.",
    )


def building_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the compile options to a command, which receives them as `options`."""

    @click.option("--float16", is_flag=True, help="Compute in half precision.")
    @click.option(
        "--performance-mode",
        "mode",
        type=click.Choice([mode.name for mode in PerformanceMode], case_sensitive=False),
        help="Trade-off between speed and power.",
    )
    @click.option("--extension", "pairs", type=Extension(), multiple=True, help="Backend option. May be repeated.")
    @wraps(command)
    def wrapped(*, float16: bool, mode: str | None, pairs: tuple[tuple[str, bytes], ...], **others: Any) -> None:
        extensions = dict(pairs)
        if len(extensions) < len(pairs):
            raise click.UsageError(f"--extension names {', '.join(name for name, _ in pairs)}; give each once")
        options = Options(
            float16=float16 or None, performance_mode=PerformanceMode[mode] if mode else None, extensions=extensions
        )
        command(options=options, **others)

    return wrapped


class _BatchingText(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # Generic from click 8.4 on.
    name = "MAX[:DELAY_US]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return Batching.of(value)
        except InvalidParameter as error:
            self.fail(error.message, param, ctx)


batching_option = click.option(
    "--batch",
    "batching",
    type=_BatchingText(),
    help="Batch waiting runs on the device, up to MAX rows per batch; DELAY_US is the time in microseconds that a run"
    " waits for others while the device is free.",
)


def _remember(setting: str, context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    """Save the value of a setting in the context, from which `settings_with` takes it."""
    if given is not None:
        context.meta[f"{_SETTING}{setting}"] = given


_IDENTITY_OPTIONS = {
    "--tls-ca": (TLS_CA_VARIABLE, "Use TLS, and trust certificates of the authority in this PEM file."),
    "--tls-server-name": (TLS_SERVER_NAME_VARIABLE, "Host name in the daemons' certificates, if not in the address."),
    "--tls-cert": (TLS_CERT_VARIABLE, "PEM file of your client certificate."),
    "--tls-key": (TLS_KEY_VARIABLE, "PEM file of its private key."),
    "--token-file": (TOKEN_FILE_VARIABLE, "File with your access token."),
}


def identity_options(command: CommandT, prefix: str = "") -> CommandT:
    """Add the TLS and token options to a command, with a prefix in their names."""
    for name, (variable, text) in reversed(_IDENTITY_OPTIONS.items()):
        setting = name.removeprefix("--").replace("-", "_")
        command = click.option(
            name.replace("--", f"--{prefix}"),
            envvar=variable,
            show_envvar=True,
            metavar="HOST" if variable == TLS_SERVER_NAME_VARIABLE else "FILE",
            expose_value=False,
            callback=partial(_remember, setting),
            help=text,
        )(command)
    return command


def device_option(*, required: bool = False, multiple: bool = False) -> Callable[[CommandT], CommandT]:
    """Add --device and the identity options to a command."""
    text = "HOST:PORT, unix:PATH, a name such as dns:///HOST:PORT, or the name of a device in NNRT_DEVICES"
    rest = "." if required else "; default: the first of NNRT_DEVICES."
    names = ("--device", "devices") if multiple else ("--device",)
    option = click.option(*names, metavar="DEVICE", required=required, multiple=multiple, help=f"{text}{rest}")
    return lambda command: option(identity_options(command))


@dataclass(frozen=True, slots=True)
class Devices:
    """Values of --device and --replicas: the devices on which a model is to run."""

    given: tuple[str, ...]
    replicas: int | None

    def require_known(self) -> None:
        """Raise UsageError if no addresses are known for a device."""
        for device in self.given or (None,):
            require_addresses(device)

    @property
    def load_arguments(self) -> dict[str, Any]:
        """Arguments for `load`."""
        device = list(self.given) if len(self.given) > 1 else next(iter(self.given), None)
        return {"device": device, "replicas": self.replicas}


def devices_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --device, --replicas and the identity options to a command, which receives them as `devices`."""

    @click.option(
        "--device",
        "given_devices",
        metavar="DEVICE",
        multiple=True,
        help="HOST:PORT, unix:PATH, a name such as dns:///HOST:PORT, or the name of a device in NNRT_DEVICES; default:"
        " the first of NNRT_DEVICES. May be repeated: all of them run the model.",
    )
    @click.option(
        "--replicas",
        type=click.IntRange(min=1),
        help="Number of devices that run the model; default: all given devices.",
    )
    @identity_options
    @wraps(command)
    def wrapped(*, given_devices: tuple[str, ...], replicas: int | None, **others: Any) -> None:
        devices = Devices(given_devices, replicas)
        devices.require_known()
        command(devices=devices, **others)

    return wrapped


def settings_with(**bounds: Any) -> Settings:
    """Return settings with these timeouts and other fields, and the command's identity options."""
    given = click.get_current_context().meta.items()
    return Settings(**{key.removeprefix(_SETTING): value for key, value in given if key.startswith(_SETTING)}, **bounds)


def runtime_for(device: str | None, settings: Settings) -> Runtime:
    """Return a runtime that can find the device. Raises UsageError if no address is known."""
    return Runtime(require_addresses(device), settings)


def require_addresses(device: str | None) -> tuple[str, ...]:
    """Return the addresses where the device may be. Raises UsageError if there is none."""
    addresses = addresses_to_ask_for(device)
    if not addresses:
        what = "there is no device" if device is None else f"{device!r} is no address, such as HOST:PORT or unix:PATH"
        how = "give --device, or set" if device is None else "to find a device by its name set"
        raise click.UsageError(f"{what}; {how} {DEVICES_VARIABLE}")
    return addresses


def open_fixed(model: Path, fixed: FixedInputs) -> OpenedModel:
    """Open the model of a command. If it is an offline model, --shape applies only to random inputs."""
    return open_model(model, fixed.shapes, constants=fixed.constants, is_offline_shaped=True)
