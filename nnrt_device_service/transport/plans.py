"""What the daemon works out once for runs that differ in nothing but their bytes (nnrt_hdi.wire.plans)."""

from collections.abc import Iterator, Sequence

import numpy as np

from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_hdi import wire
from nnrt_hdi.backend import StartableModel
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Array, TensorForm
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.plans import REQUEST_MARK, PlanLayout, reply_prefix, request_head
from nnrt_hdi.wire.runs import AnyRegion

# What a plan takes, and each of its tensors.
_PLAN_BYTES = 2048
_TENSOR_BYTES = 1024


class Plan:
    """A run that its client makes again and again: the model, the shape of each tensor, and which lie in regions."""

    __slots__ = (
        "bucket",
        "has_regions",
        "held_bytes",
        "in_bytes",
        "inline",
        "inputs",
        "is_startable",
        "layout",
        "model",
        "model_id",
        "out_bytes",
        "outputs",
        "reply_prefix",
        "takes_chunks",
        "token",
        "writes_regions",
    )

    def __init__(
        self,
        request: prepared_model_pb2.RunRequest,
        model: LoadedModel,
        inputs: Sequence[TensorForm],
        outputs: Sequence[TensorForm],
    ) -> None:
        """The tensors have these forms, and lie in regions where the request has them there.

        Raises InvalidParameter for a tensor that has no place in a packet.
        """
        self.model = model
        self.model_id = request.model_id
        self.takes_chunks = request.takes_chunks
        read = [tensor.data.HasField("region") for tensor in request.inputs]
        written = [tensor.data.HasField("region") for tensor in request.outputs] or [False] * len(outputs)
        self.layout = layout = PlanLayout(_inline_bytes(inputs, read), _inline_bytes(outputs, written))
        # Each with where it begins in the packet, None for one in a region.
        self.inputs = tuple(zip(inputs, layout.input_offsets, strict=True))
        self.outputs = tuple(zip(outputs, layout.output_offsets, strict=True))
        # Those of the inputs that a packet has, as numpy takes them.
        self.inline = [(form.shape, form.dtype, offset) for form, offset in self.inputs if offset is not None]
        self.writes_regions = any(offset is None for _, offset in self.outputs)
        self.has_regions = self.writes_regions or any(offset is None for _, offset in self.inputs)
        # Stands for the plan where something outlives it.
        self.token = object()
        # Of the runs that this one may be computed with. What lies in regions is read when its turn has come.
        is_joined = model.group is not None and not self.has_regions
        self.bucket = model.group.bucket([form.shape for form in inputs]) if is_joined and model.group else None
        # Whether its runs need no thread while they are on the device.
        self.is_startable = isinstance(model.prepared, StartableModel) and model.group is None
        self.in_bytes = sum(form.size_bytes for form in inputs)
        self.out_bytes = sum(form.size_bytes for form in outputs)
        # Of a message that has nothing but a planned reply.
        self.reply_prefix = reply_prefix(layout)
        self.held_bytes = _PLAN_BYTES + _TENSOR_BYTES * (len(inputs) + len(outputs))


def _inline_bytes(forms: Sequence[TensorForm], are_in_regions: Sequence[bool]) -> list[int | None]:
    """The sizes of tensors that a packet has; an empty one, wherever it lies, is one that no packet can have."""
    pairs = zip(forms, are_in_regions, strict=True)
    return [None if is_there and form.size_bytes else form.size_bytes for form, is_there in pairs]


def keep_plan(
    session: Session,
    request: prepared_model_pb2.RunRequest,
    model: LoadedModel,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    regions: Sequence[AnyRegion | None],
) -> int:
    """Keep a run that has ended well as a plan of its session, if it can be one: its number, or 0."""
    if request.unwanted_outputs or request.traceparent or request.profile:
        return 0
    wanted = [tensor.data.HasField("region") for tensor in request.outputs]
    if wanted != [region is not None for region in regions]:  # One had no room in its region.
        return 0
    forms_in, forms_out = _forms(model.inputs, inputs), _forms(model.outputs, outputs)
    if forms_in is None or forms_out is None:
        return 0
    try:
        plan = Plan(request, model, forms_in, forms_out)
    except InvalidParameter:
        return 0
    is_kept = session.plans.keep(request.plan, plan)
    if session.models.get(request.model_id) is not model:  # It has been released meanwhile.
        session.plans.forget(model)
    return request.plan if is_kept else 0


def _forms(forms: Sequence[TensorForm], arrays: Sequence[Array]) -> list[TensorForm] | None:
    """The forms that tensors have in a run; None where one isn't what its model says."""
    found = [form.of_run(array.shape) for form, array in zip(forms, arrays, strict=True)]
    if any(form is None or form.dtype != array.dtype for form, array in zip(found, arrays, strict=True)):
        return None
    return [form for form in found if form is not None]


class PlannedRequest:
    """A planned request that has arrived, of a plan that is known or not."""

    __slots__ = ("number", "packet", "plan", "run_id", "timeout_ms")

    def __init__(self, session: Session, packet: bytes) -> None:
        """Raises InvalidParameter for what is no planned request."""
        if len(packet) < request_head.size:
            raise InvalidParameter(f"a planned request has {len(packet)} bytes; its head has {request_head.size}")
        mark, self.number, self.run_id, self.timeout_ms = request_head.unpack_from(packet)
        if mark != REQUEST_MARK:
            raise InvalidParameter(f"a planned request begins with {mark:#x}; send {REQUEST_MARK:#x}")
        self.packet = packet
        self.plan: Plan | None = session.plans.get(self.number)

    @property
    def model_id(self) -> int:
        """The model's number, 0 where no such plan is kept."""
        return self.plan.model_id if self.plan is not None else 0

    @property
    def takes_chunks(self) -> bool:
        """Whether outputs that its reply has no room for may come in chunks."""
        return self.plan is not None and self.plan.takes_chunks

    def checked_plan(self) -> Plan:
        """The plan, which the request has the right length for. Raises InvalidParameter."""
        plan = self.plan
        if plan is None:
            raise InvalidParameter(f"no plan {self.number} is kept; send a RunRequest")
        if len(self.packet) != plan.layout.request_bytes:
            raise InvalidParameter(
                f"a request of plan {self.number} has {len(self.packet)} bytes; send {plan.layout.request_bytes}"
            )
        return plan


class PlannedReply:
    """The reply of a planned run that went as planned, and the regions that its outputs are in."""

    __slots__ = ("packet", "plan", "regions")

    def __init__(self, plan: Plan, packet: bytes, regions: Sequence[AnyRegion | None] = ()) -> None:
        self.plan = plan
        self.packet = packet
        self.regions = regions

    @property
    def inline_bytes(self) -> int:
        """The bytes that it takes where it is kept."""
        return len(self.packet)

    def messages(self) -> Iterator[prepared_model_pb2.RunReply]:
        """It as an ordinary reply, as AwaitRun gives it."""
        _, run_id, *times = self.plan.layout.reply_head(self.packet)
        forms = [form for form, _ in self.plan.outputs]
        outputs = [
            # An output that isn't here has a shape and no memory.
            np.broadcast_to(form.dtype.type(0), form.shape)  # type: ignore[union-attr]
            if offset is None
            else np.ndarray(form.shape, form.dtype, self.packet, offset)
            for form, offset in self.plan.outputs
        ]
        reply = prepared_model_pb2.RunReply()
        wire.fill_reply(reply, run_id, times[:-1], forms, outputs, self.regions)
        reply.times.served_ns = times[-1]
        yield reply
