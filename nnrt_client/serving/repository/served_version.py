"""Version of a model that is loaded on devices and takes requests."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from nnrt_client.model_session.pool import PooledSession
from nnrt_client.serving.datatypes import Array
from nnrt_client.serving.errors import Busy
from nnrt_client.serving.repository.model_settings import ModelSettings
from nnrt_client.serving.requests import InputTensor
from nnrt_client.serving.statistics import Statistics
from nnrt_client.serving.tensor_info import described
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, format_shape


class ServedVersion:
    """Version of a model, ready to take requests. Only the server's loop uses it."""

    def __init__(
        self,
        model: str,
        version: str,
        session: PooledSession,
        settings: ModelSettings,
        labels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Take requests for a session, which `close` closes."""
        self.model = model
        self.version = version
        self.session = session
        self.settings = settings
        # Names of the classes of outputs.
        self.labels = labels
        self.inputs = described(session, session.inputs)
        self.outputs = described(session, session.outputs)
        # Data types of the outputs.
        self.datatypes = {info.name: info.datatype for info in self.outputs}
        self.statistics = Statistics()
        # Requests under way.
        self.under_way = 0
        self._by_name = {info.name: info for info in self.inputs}
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def place(self) -> str:
        """Name of the version in messages."""
        return f"model {self.model!r} version {self.version}"

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as under way during the block. Raises Busy if there are too many."""
        if self.under_way >= self.settings.most_waiting:
            raise Busy(f"{self.under_way} requests are under way; try again later", place=self.place)
        self.under_way += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._is_idle.set()

    async def drained(self) -> None:
        """Wait until no request is under way."""
        await self._is_idle.wait()

    def bind(self, given: Sequence[InputTensor]) -> dict[str, Any]:
        """Return the inputs by name. Raises InvalidParameter if they don't fit the model."""
        bound: dict[str, Array] = {}
        for tensor in given:
            info = self._by_name.get(tensor.name)
            if info is None:
                raise InvalidParameter(
                    f"there is no input {tensor.name!r}; the inputs are {list(self._by_name)}", place=self.place
                )
            shape = tensor.array.shape
            fits = len(shape) == len(info.shape) and all(
                known in (dim, UNKNOWN_DIM) for known, dim in zip(info.shape, shape, strict=True)
            )
            if tensor.datatype != info.datatype or not fits:
                raise InvalidParameter(
                    f"it is {tensor.datatype}{format_shape(shape)}; the model takes"
                    f" {info.datatype}{format_shape(info.shape)}",
                    place=f"{self.place}: input {tensor.name!r}",
                )
            if tensor.name in bound:
                raise InvalidParameter("it is given twice", place=f"{self.place}: input {tensor.name!r}")
            bound[tensor.name] = tensor.array
        if len(bound) < len(self.inputs):
            missing = [name for name in self._by_name if name not in bound]
            raise InvalidParameter(f"the inputs {missing} are missing", place=self.place)
        return bound

    def require_outputs(self, names: Sequence[str]) -> None:
        """Raise InvalidParameter unless the model has the outputs, and each is named once."""
        seen: set[str] = set()
        for name in names:
            if name not in self.datatypes:
                known = list(self.datatypes)
                raise InvalidParameter(f"there is no output {name!r}; the outputs are {known}", place=self.place)
            if name in seen:
                raise InvalidParameter("it is asked for twice", place=f"{self.place}: output {name!r}")
            seen.add(name)

    def close(self) -> None:
        """Free the model on its devices."""
        self.session.close()
