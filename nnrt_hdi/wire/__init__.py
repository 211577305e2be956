"""Wire: the only room where messages become values, and values messages.

This room checks what a single message can show: enums are known, sizes agree, shapes fit their bytes. Functions raise
InvalidParameter with the place. Client and daemon use `wire.x`; only `packet` and `run_messages`, which are imported by
themselves, write and read bytes.
"""

from nnrt_hdi.wire.enums import known_enum, number
from nnrt_hdi.wire.errors import (
    at_place,
    error_detail,
    error_detail_of,
    error_from_detail,
    error_of_status,
    rich_status,
    shortened,
)
from nnrt_hdi.wire.models import (
    SentModel,
    batching,
    batching_message,
    dim_ranges,
    dim_ranges_message,
    graph,
    model_config,
    model_config_message,
    model_message,
    named_constant,
    origin,
    origin_number,
    supports,
)
from nnrt_hdi.wire.runs import (
    add_operator_times,
    described_form,
    described_spec,
    io_array,
    io_spec,
    io_tensor_message,
    operator_times,
)
from nnrt_hdi.wire.session import (
    SESSION_METADATA,
    TICKET_METADATA,
    canary_state,
    counters,
    counters_message,
    device_info,
    device_info_message,
    device_state,
    device_state_message,
    device_status,
    device_status_message,
)
from nnrt_hdi.wire.tensors import tensor_message, tensor_spec

__all__ = [
    "SESSION_METADATA",
    "TICKET_METADATA",
    "SentModel",
    "add_operator_times",
    "at_place",
    "batching",
    "batching_message",
    "canary_state",
    "counters",
    "counters_message",
    "described_form",
    "described_spec",
    "device_info",
    "device_info_message",
    "device_state",
    "device_state_message",
    "device_status",
    "device_status_message",
    "dim_ranges",
    "dim_ranges_message",
    "error_detail",
    "error_detail_of",
    "error_from_detail",
    "error_of_status",
    "graph",
    "io_array",
    "io_spec",
    "io_tensor_message",
    "known_enum",
    "model_config",
    "model_config_message",
    "model_message",
    "named_constant",
    "number",
    "operator_times",
    "origin",
    "origin_number",
    "rich_status",
    "shortened",
    "supports",
    "tensor_message",
    "tensor_spec",
]
