"""Descriptions of models as messages: metadata, configuration and statistics."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.serving.datatypes import BYTES
from nnrt_client.serving.repository.served_version import ServedVersion, TensorInfo
from nnrt_client.serving.statistics import Duration
from nnrt_client.serving.wire import open_inference_pb2 as pb

PLATFORM = "nnrt"


def metadata(version: ServedVersion, versions: Sequence[str]) -> Any:
    """Return the metadata of a version."""

    def told(tensors: Sequence[TensorInfo]) -> list[Any]:
        kind = pb.ModelMetadataResponse.TensorMetadata
        return [kind(name=one.name, datatype=one.datatype, shape=one.shape) for one in tensors]

    return pb.ModelMetadataResponse(
        name=version.model,
        versions=versions,
        platform=PLATFORM,
        inputs=told(version.inputs),
        outputs=told(version.outputs),
    )


def config(version: ServedVersion) -> Any:
    """Return the configuration of a version."""
    told = pb.ModelConfig(name=version.model, platform=PLATFORM, backend=PLATFORM, max_batch_size=0)
    for one in version.inputs:
        told.input.add(name=one.name, data_type=_data_type(one), dims=one.shape)
    for one in version.outputs:
        told.output.add(name=one.name, data_type=_data_type(one), dims=one.shape)
        if (labels := version.settings.labels.get(one.name)) is not None:
            told.output[-1].label_filename = labels.name
    told.instance_group.add(count=len(version.session.devices))
    if (batching := version.settings.options.get("batching")) is not None:
        told.dynamic_batching.preferred_batch_size.append(batching.max_size)
        told.dynamic_batching.max_queue_delay_microseconds = batching.max_delay_us
    return told


def statistics(version: ServedVersion) -> Any:
    """Return the counters of a version."""
    counted = version.statistics
    return pb.ModelStatistics(
        name=version.model,
        version=version.version,
        last_inference=int(counted.last_inference_s * 1e3),
        inference_count=counted.inferences,
        execution_count=counted.success.count,
        inference_stats=pb.InferStatistics(
            success=_duration(counted.success),
            fail=_duration(counted.fail),
            queue=_duration(counted.queue),
            compute_input=_duration(counted.compute_input),
            compute_infer=_duration(counted.compute_infer),
            compute_output=_duration(counted.compute_output),
        ),
    )


def _duration(one: Duration) -> Any:
    return pb.StatisticDuration(count=one.count, ns=one.ns)


def _data_type(one: TensorInfo) -> Any:
    return pb.DataType.Value("TYPE_STRING" if one.datatype == BYTES else f"TYPE_{one.datatype}")
