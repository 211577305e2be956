"""Function `load`, which makes a session of a model file in one step."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache as cached
from functools import partial
from typing import Literal

from typing_extensions import Unpack

from nnrt_client.build.build_task import Progress
from nnrt_client.model.model import Model
from nnrt_client.model_session.loading import Loading, LoadOptions
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import Source
from nnrt_client.model_session.pool import Pool, require_wait
from nnrt_client.model_session.reloaded_session import make_reloaded
from nnrt_client.pool.backoff import Backoff
from nnrt_client.resolvers.names import is_name
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_to_ask_for
from nnrt_hdi.errors import InvalidParameter, UnavailableDevice


def load(
    model: Source | Model,
    device: str | int | Device | Sequence[str] | None = None,
    *,
    replicas: int | None = None,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    settings: Settings | None = None,
    on_death: Literal["raise", "reload"] = "raise",
    wait_s: float = 0.0,
    **how: Unpack[LoadOptions],
) -> "ModelSession":
    """Make a model ready to run on a device, and return a session with it.

    Each run goes to one device. Several devices get the model if `device` is several addresses or a name that resolves
    to addresses, or if `replicas` is given. The session then has a Pool of its own, see `Pool.load`. With a `runtime`,
    a name stands for the first of its devices that answers; `Pool(runtime=runtime)` uses all devices of a runtime.

    An ONNX file goes to the device in the first of the `ways` that works: as NNRt's operators, or as the file itself,
    if the device takes such files. All other models go as operators.

    Args:
        model: ONNX file, saved model or offline model, as a path or as its bytes; or a Model.
        device: Address, name or id of a device, or a Device, or a list of addresses. Without it, the first device of
            NNRT_DEVICES that answers.
        replicas: Number of devices that get the model; without it all, where there are several.
        progress: Called as by `Compilation.build`, and first with the stage "reading" if the model is a file.
        runtime: Runtime that has the device. Without it, and without a Device, the session makes one.
        settings: Settings of the runtime that the session makes.
        on_death: With "reload" the session is a ReloadedSession, which loads the model again with the same arguments
            when its daemon has died.
        wait_s: Seconds for which to keep looking for a device that can't be reached, for programs that start before
            their daemon.
        **how: Options about the model, see `LoadOptions`.

    Returns:
        Session that frees the model when it is closed.

    Raises:
        InvalidPath: The file is missing or not accessible.
        InvalidFile: The file is damaged or no model.
        InvalidParameter: `shapes`, `constants` or other arguments don't fit.
        Unsupported: The ONNX model can't be imported.
        UnavailableDevice: The device can't be reached; the message has each address and its reason.
        ConnectionFailed: The daemon refuses the client.
        OperationFailed: All addresses answer and none is that device, or the device doesn't take the model. Where
            several ways were tried the error has the reasons of all.
        NnrtError: Other errors of `Compilation.build`.
    """
    if on_death != "raise":
        if isinstance(ways := how.get("ways"), Iterator):
            how["ways"] = tuple(ways)  # It would be empty for the next load.

        def load_again(progress: Progress | None, wait_s: float) -> ModelSession:
            return load(
                model,
                device,
                replicas=replicas,
                progress=progress,
                runtime=runtime,
                settings=settings,
                wait_s=wait_s,
                **how,
            )

        return make_reloaded(on_death, load_again, progress, wait_s)
    loading = Loading(model, **how)
    with ExitStack() as stack:
        is_name_of_many = isinstance(device, str) and is_name(device) and runtime is None
        if replicas is None and (device is None or isinstance(device, str | int | Device)) and not is_name_of_many:
            require_wait(wait_s)
            return loading.load_on(cached(partial(_device, device, runtime, settings, wait_s, stack)), stack, progress)
        pool = stack.enter_context(Pool(_addresses(device), settings=settings, runtime=runtime))
        return pool._session(loading, stack, replicas=replicas, progress=progress, wait_s=wait_s)


def _addresses(device: str | int | Device | Sequence[str] | None) -> Sequence[str] | None:
    """Return the addresses of a pool; None stands for those of NNRT_DEVICES."""
    if isinstance(device, int | Device) or (isinstance(device, str) and ":" not in device):
        raise InvalidParameter(f"the device is {device!r}; replicas need addresses, or names that are resolved")
    return [device] if isinstance(device, str) else device


def _device(
    device: str | int | Device | None,
    runtime: Runtime | None,
    settings: Settings | None,
    wait_s: float,
    stack: ExitStack,
) -> Device:
    """Return the device, and look for it again for `wait_s`. The stack closes a runtime that is made for it."""
    if isinstance(device, Device):
        return device
    if runtime is None:
        runtime = stack.enter_context(Runtime(addresses_to_ask_for(device), settings))
    until, backoff = time.monotonic() + wait_s, Backoff()
    while True:
        try:
            return runtime.device(0 if device is None else device)
        except UnavailableDevice:
            now = time.monotonic()
            if now >= until:
                raise
            backoff.record_failure(now)
            time.sleep(min(backoff.due, until) - now)
