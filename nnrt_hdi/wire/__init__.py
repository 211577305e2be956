"""The only place where messages become values and values messages.

What comes from a message is checked here as far as a single message can be: enums are known, sizes agree, shapes hold
their bytes. Everything raises InvalidParameter with the place. Both ends of the wire read `wire.x` for what stands
here; only the run codec, which one imports by itself, writes and reads bytes.
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
    fill_reply,
    form_of_run,
    inline_array,
    io_array,
    io_bare_message,
    io_chunked_message,
    io_described_message,
    io_region_fields,
    io_region_message,
    io_spec,
    io_tensor_fields,
    io_tensor_message,
    times_told,
)
from nnrt_hdi.wire.session import (
    SESSION_METADATA,
    TICKET_METADATA,
    counters,
    counters_message,
    device_info,
    device_info_message,
    device_state,
    device_status,
)
from nnrt_hdi.wire.tensors import array_from_bytes, tensor_message, tensor_spec

__all__ = [
    "SESSION_METADATA",
    "TICKET_METADATA",
    "SentModel",
    "array_from_bytes",
    "at_place",
    "counters",
    "counters_message",
    "device_info",
    "device_info_message",
    "device_state",
    "device_status",
    "dim_ranges",
    "dim_ranges_message",
    "error_detail",
    "error_detail_of",
    "error_from_detail",
    "error_of_status",
    "fill_reply",
    "form_of_run",
    "graph",
    "inline_array",
    "io_array",
    "io_bare_message",
    "io_chunked_message",
    "io_described_message",
    "io_region_fields",
    "io_region_message",
    "io_spec",
    "io_tensor_fields",
    "io_tensor_message",
    "known_enum",
    "model_config",
    "model_config_message",
    "model_message",
    "named_constant",
    "number",
    "origin",
    "origin_number",
    "rich_status",
    "shortened",
    "supports",
    "tensor_message",
    "tensor_spec",
    "times_told",
]
