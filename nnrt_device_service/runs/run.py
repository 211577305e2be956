"""A run, from its request to its reply."""

from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter_ns

from nnrt_device_service.runs.outputs import require_outputs
from nnrt_device_service.runs.tensors import OutputRegions, Placed, frozen_copy, placed_in
from nnrt_device_service.sessions.descriptions import Description
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.run_registry import KnownRun
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError, UnavailableDevice
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.tensor import Array, TensorSpec


class Run(KnownRun):
    """A run of a model: what it is to compute, what it has taken of the daemon, and what it gave.

    `frames` and `requests` make runs of what clients send, `Executing` computes them, `Replies` answers them.
    """

    __slots__ = (
        "asked_ns",
        "began_ns",
        "computed_ns",
        "copied_in_ns",
        "description",
        "done_ns",
        "error",
        "has_model",
        "has_slot",
        "held",
        "in_regions",
        "inputs",
        "is_as_promised",
        "is_inside",
        "is_unknown",
        "is_written",
        "known",
        "model",
        "operators",
        "outputs",
        "placed",
        "received_at_ns",
        "regions",
        "reserved_bytes",
        "session",
        "targets",
    )

    def __init__(self, session: Session, run_id: int, cancellation: Cancellation, received_at_ns: int = 0) -> None:
        """All of the request was here at a time of time.perf_counter_ns."""
        self.session = session
        self.id = run_id
        self.cancellation = cancellation
        self.received_at_ns = received_at_ns or perf_counter_ns()
        # Of the registry.
        self.reply = self.awaiter = self.held_bytes = None
        self.chunked = ()
        self.was_too_long = False
        self.description: Description | None = None
        self.model: LoadedModel | None = None
        # The client's number of the description is none that is kept.
        self.is_unknown = False
        # In the order of the model's; those that lie in regions are put among them when the run is taken up.
        self.inputs: list[Array] = []
        # buffer_id, offset and bytes of each region, inputs first.
        self.regions: Sequence[int] = ()
        # Under what is kept of them; empty where nothing is.
        self.in_regions = b""
        self.placed: Placed | None = None
        self.targets: OutputRegions | None = None
        self.held: ExitStack | None = None
        # What the run has entered and not yet left: the drain gate, the model, the device, and bytes of the session.
        self.is_inside = self.has_model = self.has_slot = False
        self.reserved_bytes = 0
        # When it began to wait for the device, and got onto it; 0 before that.
        self.asked_ns = self.began_ns = 0
        self.copied_in_ns = self.computed_ns = self.done_ns = 0
        # What was known of the outputs before they were computed.
        self.known: Sequence[TensorSpec] = ()
        self.outputs: Sequence[Array] = ()
        # The outputs are as the description promises; those that were to go to regions are there.
        self.is_as_promised = self.is_written = False
        self.operators: Sequence[OperatorTime] = ()
        # What the run failed with.
        self.error: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        """The run has outputs, or an error."""
        return self.error is not None or self.done_ns > 0

    @property
    def rows(self) -> int:
        """Rows of a run that may be computed with others."""
        return len(self.inputs[0])

    @property
    def usual_ns(self) -> int | None:
        """Time that runs of the model take on the device, as far as that is known."""
        return self.model.usual_ns if self.model is not None else None

    def take_inputs(self) -> None:
        """Find the tensors that lie in regions, and take what they need. Raises InvalidParameter or UnknownHandle for
        regions that there aren't, or that don't fit, OutOfMemory, and UnavailableDevice where the device fails."""
        description = self.description
        assert description is not None
        self.placed = placed = placed_in(self.session, description, self.regions, self.in_regions)
        self.targets = placed.targets
        for index, array in enumerate(placed.inputs):
            if array is not None:
                self.inputs[index] = array
        if placed.holds:
            with ExitStack() as held:
                placed.hold(self.session, held)
                self.held = held.pop_all()
        for index in placed.copied:
            self.inputs[index] = frozen_copy(self.inputs[index])

    def take_outputs(self, device_name: str) -> None:
        """Check what the backend gave, and put it where it goes. It fails for what can't be the outputs of the run,
        where the device does, and with what it was cancelled for."""
        assert self.model is not None
        targets, placed, description = self.targets, self.placed, self.description
        places = targets.arrays if targets is not None else ()
        try:
            require_outputs(device_name, self.model.outputs, self.outputs, self.known, places)
            if targets is not None:
                self.cancellation.check()  # Nobody waits for it any more, and the memory may serve other runs.
                self.is_written = targets.take(self.outputs)
            if placed is not None:
                self.outputs = placed.sendable(self.outputs, self.is_written)
        except Exception as error:
            self.is_as_promised, self.outputs, self.error = False, (), error
        else:
            if description is not None:
                self.is_as_promised = description.is_kept_by(self.outputs, is_written=self.is_written)

    def let_go(self) -> None:
        """Let go of the inputs, and of what the run used beside its model and the device."""
        self.inputs = []
        held, self.held, self.placed = self.held, None, None
        if held is not None:
            held.close()

    def fail(self, error: BaseException) -> None:
        """Note what the run failed with; on the device that is a fault of the device, unless it says otherwise."""
        self.outputs = ()
        self.error = failed_on_device(error) if self.began_ns else error

    def times(self) -> tuple[int, int, int, int, int, int]:
        """Tell where the time of a run that ended well went, as the head of a reply has it."""
        now, received_at_ns, done_ns = perf_counter_ns(), self.received_at_ns, self.done_ns
        queued_ns = max(self.began_ns - self.asked_ns, 0)
        return received_at_ns, queued_ns, self.copied_in_ns, self.computed_ns, now - done_ns, now - received_at_ns


def failed_on_device(error: BaseException) -> BaseException:
    """Make of what a backend has raised the error that a client is told."""
    if isinstance(error, NnrtError | MemoryError):
        return error
    failed = UnavailableDevice(
        f"the device failed to run the model ({type(error).__name__}); the daemon's log has the details"
    )
    failed.__cause__ = error
    return failed
