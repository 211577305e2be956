"""From a file to a session, in one step."""

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
from nnrt_client.model_session.reloaded_session import reloaded
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
    """Have a device ready to run a model: an ONNX file, a saved model or an offline one, its bytes, or a Model.

    The device is given by its address, name or id, or as a Device; without, it is the first of NNRT_DEVICES that
    answers. Where it can't be reached, `wait_s` is how long to look for it again: for who starts before its daemon. The
    session makes a runtime with these `settings`, unless it is given one, or a Device.

    Several devices get the model where there are several addresses, a name behind which addresses are found, or
    `replicas`: so many of them, all without. Each run goes to one of them: the session has a Pool of its own, see
    `Pool.load`. In a `runtime` that is given a name stands for the first device behind it that answers; load the model
    by `Pool(runtime=runtime)` to use all of the runtime.

    `shapes` settle unknown dimensions of inputs, `constants` freeze inputs to what they always are, by name:
    `constants={"sr": 16000}` leaves a model without the input sr. An ONNX file goes to the device in the first of these
    `ways` that works: as NNRt's operators, or as it is, where the device takes such files; all else goes as operators.
    Unless `ways` are given, one with an input that comes back longer, as the cache of a decoder, rather goes as it is.
    With `fallback="cpu"`, or a Fallback, a file that goes in none of these ways is cut: the parts that the device runs
    go there, the others run here, in ONNX Runtime. `ways` may name "partition" then, to have that come earlier. With
    `batching` the device computes runs that wait for it together with those of other sessions that ask the same of the
    same model; it goes as operators then, and computes the rows of its inputs apart from each other. `progress` is
    called as by `Compilation.build`.

    Where the device can restore what it compiled and its daemon doesn't keep that itself, it is kept in the directory
    `cache`, or in the user's (see `cache_directory`), and found there the next time. It is written while the session is
    used, and `close` ends that: see `wait_until_cached`. A file that goes as it is needs no cache.

    With `on_death="reload"` the session loads the model again when its daemon has died, by the same call: a
    ReloadedSession.

    Raises InvalidPath and InvalidFile for files, InvalidParameter for `shapes` and `constants` that don't fit,
    UnavailableDevice where the device can't be reached, with each address and its reason, OperationFailed where all
    answer and none is that device, ConnectionFailed where the client is refused, and what `Compilation.build` raises;
    Unsupported for an ONNX model that can't be imported. Where there are several ways the error has the reasons of all.
    """
    if on_death != "raise":
        if isinstance(ways := how.get("ways"), Iterator):
            how["ways"] = tuple(ways)  # It would be empty the next time.

        def again(told: Progress | None, wait_s: float) -> ModelSession:
            return load(
                model,
                device,
                replicas=replicas,
                progress=told,
                runtime=runtime,
                settings=settings,
                wait_s=wait_s,
                **how,
            )

        return reloaded(on_death, again, progress, wait_s)
    loading = Loading(model, **how)
    with ExitStack() as stack:
        is_name_of_many = isinstance(device, str) and is_name(device) and runtime is None
        if replicas is None and (device is None or isinstance(device, str | int | Device)) and not is_name_of_many:
            require_wait(wait_s)
            return loading.on(cached(partial(_device, device, runtime, settings, wait_s, stack)), stack, progress)
        pool = stack.enter_context(Pool(_addresses(device), settings=settings, runtime=runtime))
        return pool._session(loading, stack, replicas=replicas, progress=progress, wait_s=wait_s)


def _addresses(device: str | int | Device | Sequence[str] | None) -> Sequence[str] | None:
    """The addresses of a pool; None for those of NNRT_DEVICES."""
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
    """Find the device, for so long if it can't be reached. The stack closes a runtime that is made for it."""
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
            backoff.failed(now)
            time.sleep(min(backoff.due, until) - now)
