"""Plan of a loop: the runs of its steps, on whatever device it is made."""

import threading
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

from nnrt_client.build.compilation import Compilation
from nnrt_client.model.model import Model, parts_of
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.run.signature import Signature
from nnrt_client.sequences.home import Keepings, LoopedRun
from nnrt_client.session.device import Device
from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.session import Session
from nnrt_hdi.closable import Closable
from nnrt_hdi.sequences import Keeping
from nnrt_hdi.tensor import Array


class Numbers:
    """Numbers of a sequence's values, by name."""

    def __init__(self, names: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(names or {})

    def of(self, name: str) -> int:
        """Return the number of a name, a new one for a new name."""
        return self._numbers.setdefault(name, len(self._numbers) + 1)

    def names(self, numbers: Collection[int]) -> set[str]:
        """Return the names of some numbers."""
        return {name for name, number in self._numbers.items() if number in numbers}

    def copy(self) -> "Numbers":
        """Return a copy."""
        return Numbers(self._numbers)


class GlueModels(Closable):
    """Glue graphs that are compiled in the session of a model."""

    def __init__(self, session: Session) -> None:
        """Create it. Only `ModelDispatcher.part` calls this."""
        self._device = Device(session)
        self._lock = threading.Lock()
        # By the ids of the models, which are kept so that the ids stay theirs.
        self._compiled: dict[int, tuple[Model, ModelDispatcher]] = {}

    def signature(self, glue: Model) -> Signature:
        """Return the compiled glue; raise the errors of `Compilation.build`."""
        return call_in_worker(self._find, glue)

    def _find(self, glue: Model) -> Signature:
        with self._lock:
            found = self._compiled.get(id(glue))
            if found is None:
                with Compilation(glue, self._device) as compilation:
                    compilation.build()
                    found = self._compiled[id(glue)] = glue, ModelDispatcher(compilation._prepared())
            return found[1].signature

    def close(self) -> None:
        """Release the glue graphs."""
        compiled, self._compiled = self._compiled, {}
        for _, dispatcher in compiled.values():
            dispatcher.close()


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Runs of a loop's step: the model's, whose outputs the glue reads, and the glue's; or the runs of a queue.

    The inputs and outputs of the glue are values of the same names. Each run of a queue has the numbers of the values
    that it reads, and values to write before it.
    """

    reads: Items[int]
    keepings: Keepings
    glue: Model | None
    numbers: Numbers
    delivered: Items[int]
    stop: int = 0
    queue: Items[tuple[Items[int], Mapping[int, Array]]] = ()

    @property
    def made(self) -> set[int]:
        """Numbers of the values that a step makes."""
        made = {keeping.value for _, keeping in self.keepings}
        if self.glue is not None:
            made |= {self.numbers.of(spec.name) for spec in parts_of(self.glue).graph.output_specs}
        return made.union(*[values for _, values in self.queue])

    def runs(self, dispatcher: ModelDispatcher) -> list[LoopedRun]:
        """Return the runs of a step on the device of a dispatcher. Compiles the glue there at first.

        Raises:
            NnrtError: As `Compilation.build`.
        """
        signature, keepings, delivered = dispatcher.signature, self.keepings, self.delivered
        if self.queue:
            return [LoopedRun(signature, reads, keepings, values, delivered) for reads, values in self.queue]
        if self.glue is None:
            return [LoopedRun(signature, self.reads, keepings, {}, delivered, self.stop)]
        glue = dispatcher.part(GlueModels).signature(self.glue)
        reads = [self.numbers.of(spec.name) for spec in glue.inputs]
        results = tuple((at, Keeping(self.numbers.of(spec.name))) for at, spec in enumerate(glue.outputs))
        return [
            LoopedRun(signature, self.reads, keepings, {}),
            LoopedRun(glue, reads, results, {}, delivered, self.stop),
        ]
