"""Inference: sends requests to versions of models, whichever face they came by."""

import asyncio
import math
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnrt_client.model_session.model_session import NamedOutputs
from nnrt_client.serving.call import Call
from nnrt_client.serving.classification import classify
from nnrt_client.serving.datatypes import BYTES, Array, texts, to_bytes
from nnrt_client.serving.repository.served_version import ServedVersion
from nnrt_client.serving.requests import InferRequest, InferResponse, MadeOutput, WantedOutput
from nnrt_hdi.errors import InvalidParameter, NnrtError, TimedOut

# Parameters of a request that the server reads; a response repeats the others.
_READ = ("priority", "timeout", "binary_data_output", "headers")
# Elements of an output that are sorted, or written to shared memory, beside the loop.
_MANY = 1 << 16


class Inference:
    """Sends requests to the versions that a repository chooses. Only the server's loop uses it."""

    def __init__(self, choose: Callable[[str, str], ServedVersion], *, passes_identities: bool = False) -> None:
        """Create it.

        Args:
            choose: Returns the version for a model's name and a version, which may be empty.
            passes_identities: Whether daemons are told on whose behalf runs are, where the access file has the name.
        """
        self._choose = choose
        self._passes_identities = passes_identities

    async def infer(self, request: InferRequest, call: Call) -> InferResponse:
        """Compute the request of a call. If its task is cancelled, its run is cancelled, on the device, too.

        Raises:
            UnknownModel: There is no such model or version.
            NotReady: It can't be used now.
            Busy: Too many requests are under way.
            InvalidParameter: Inputs, outputs or parameters don't fit.
            TimedOut: The request took longer than its limit.
            NnrtError: Other errors of a run.
        """
        call.model, call.version, call.id = request.model, request.version, request.id
        version = self._choose(request.model, request.version)
        call.version = version.version
        began_ns, statistics = perf_counter_ns(), version.statistics
        try:
            with version.request():
                named = await self._run(version, request, call)
                outputs = await _outputs(version, request, named)
        except asyncio.CancelledError:
            statistics.cancelled += 1
            raise
        except NnrtError as error:
            statistics.count_failure(perf_counter_ns() - began_ns, error)
            raise
        statistics.count_success(perf_counter_ns() - began_ns, _rows(request), named.device_times)
        parameters = {name: one for name, one in request.parameters.items() if name not in _READ}
        return InferResponse(version.model, version.version, request.id, outputs, parameters)

    async def _run(self, version: ServedVersion, request: InferRequest, call: Call) -> NamedOutputs:
        inputs = version.bind(request.inputs)
        wanted = [output.name for output in request.outputs]
        version.require_outputs(wanted)
        caller = call.identity if self._passes_identities else None
        return await version.session.run_async(
            inputs,
            outputs=wanted or None,
            timeout_ms=_timeout_ms(version, request),
            on_behalf_of=caller.name if caller is not None and caller.is_named else None,
        )


def _timeout_ms(version: ServedVersion, request: InferRequest) -> int:
    """Return the limit of a run: the least of those of the caller, of the request's parameter and of the model."""
    asked_us = request.parameters.get("timeout", 0)
    if isinstance(asked_us, bool | str) or asked_us < 0:
        raise InvalidParameter(
            f"the parameter timeout is {asked_us!r}; use microseconds, 0 for no limit", place=version.place
        )
    limit_s = min(version.settings.timeout_s, asked_us / 1e6 or math.inf)
    if request.timeout_s is not None:
        if request.timeout_s <= 0:
            raise TimedOut("the request came too late", place=version.place)
        limit_s = min(limit_s, request.timeout_s)
    return max(1, math.ceil(limit_s * 1e3))


async def _outputs(version: ServedVersion, request: InferRequest, named: Mapping[str, Any]) -> list[MadeOutput]:
    wanted = request.outputs or [WantedOutput(info.name, is_binary=request.is_binary) for info in version.outputs]

    def make() -> list[MadeOutput]:
        return [_output(version, one, named[one.name]) for one in wanted]

    takes_long = any(
        (one.classes or one.region) and getattr(named[one.name], "size", 0) > _MANY for one in request.outputs
    )
    return await asyncio.to_thread(make) if takes_long else make()


def _output(version: ServedVersion, wanted: WantedOutput, value: Any) -> MadeOutput:
    place, datatype = f"{version.place}: output {wanted.name!r}", version.datatypes[wanted.name]
    array: Array = value if isinstance(value, np.ndarray) else texts(value)
    if wanted.classes:
        datatype, array = BYTES, classify(array, wanted.classes, version.labels.get(wanted.name, ()), place)
    if wanted.region is None:
        return MadeOutput(wanted, datatype, array.shape, array)
    size = wanted.region.write(to_bytes(array), place)
    return MadeOutput(wanted, datatype, array.shape, None, size)


def _rows(request: InferRequest) -> int:
    """Return the number of rows of a request: the first dimension of its first input."""
    shape = request.inputs[0].array.shape if request.inputs else ()
    return shape[0] if shape else 1
