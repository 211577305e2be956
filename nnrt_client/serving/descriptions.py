"""Descriptions of the server and its models, with the protocol's names: both faces tell them as they are."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.serving.datatypes import BYTES
from nnrt_client.serving.repository.served_version import ServedVersion
from nnrt_client.serving.repository.version import Entry, State
from nnrt_client.serving.server_state import NAME, ServerState
from nnrt_client.serving.shared_memory import SharedRegion
from nnrt_client.serving.statistics import Duration
from nnrt_client.serving.tensor_info import TensorInfo
from nnrt_hdi import __version__

PLATFORM = "nnrt"

Described = dict[str, Any]


def server(state: ServerState) -> Described:
    """Return the server's name, version and extensions."""
    return {"name": NAME, "version": __version__, "extensions": list(state.extensions)}


def metadata(version: ServedVersion, versions: Sequence[str]) -> Described:
    """Return the inputs and outputs of a version, of a model that has `versions`."""
    return {
        "name": version.model,
        "versions": list(versions),
        "platform": PLATFORM,
        "inputs": [_tensor(one) for one in version.inputs],
        "outputs": [_tensor(one) for one in version.outputs],
    }


def config(version: ServedVersion) -> Described:
    """Return what of Triton's configuration of a model has a meaning here."""
    told: Described = {
        "name": version.model,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": 0,
        "input": [_config_tensor(one) for one in version.inputs],
        "output": [_config_tensor(one) for one in version.outputs],
        "instance_group": [{"count": len(version.session.devices)}],
    }
    for output in told["output"]:
        if (labels := version.settings.labels.get(output["name"])) is not None:
            output["label_filename"] = labels.name
    if (batching := version.settings.options.get("batching")) is not None:
        told["dynamic_batching"] = {
            "preferred_batch_size": [batching.max_size],
            "max_queue_delay_microseconds": batching.max_delay_us,
        }
    return told


def statistics(version: ServedVersion) -> Described:
    """Return the counters of a version."""
    counted = version.statistics
    p50_ns, p99_ns = (int(one * 1e9) for one in counted.latencies_s((0.5, 0.99))) if counted.recent_s else (0, 0)
    return {
        "name": version.model,
        "version": version.version,
        "last_inference": int(counted.last_inference_s * 1e3),
        "inference_count": counted.inferences,
        "execution_count": counted.success.count,
        "inference_stats": {
            "success": _duration(counted.success),
            "fail": _duration(counted.fail),
            "queue": _duration(counted.queue),
            "compute_input": _duration(counted.compute_input),
            "compute_infer": _duration(counted.compute_infer),
            "compute_output": _duration(counted.compute_output),
        },
        "under_way": version.under_way,
        "p50_ns": p50_ns,
        "p99_ns": p99_ns,
        "devices": [device.name for device in version.session.devices],
    }


def index(entries: Sequence[Entry], *, only_ready: bool) -> list[Described]:
    """Return the state of every version of every model, or of those that are ready."""
    return [
        {"name": one.model, "version": one.version, "state": one.state.value, "reason": one.reason}
        for one in entries
        if one.state is State.READY or not only_ready
    ]


def region(one: SharedRegion) -> Described:
    """Return a registered region of shared memory."""
    return {"name": one.name, "key": one.key, "offset": one.offset, "byte_size": one.size_bytes}


def _tensor(one: TensorInfo) -> Described:
    return {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}


def _config_tensor(one: TensorInfo) -> Described:
    data_type = "TYPE_STRING" if one.datatype == BYTES else f"TYPE_{one.datatype}"
    return {"name": one.name, "data_type": data_type, "dims": list(one.shape)}


def _duration(one: Duration) -> Described:
    return {"count": one.count, "ns": one.ns}
