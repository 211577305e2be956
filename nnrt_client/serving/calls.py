"""Calls of clients, whichever face they came by: they are let in, traced and logged here."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from nnrt_client.serving.access_log import AccessLog
from nnrt_client.serving.errors import grpc_status
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.errors import NnrtError

if TYPE_CHECKING:
    from nnrt_client.serving.guard import Guard
    from nnrt_client.serving.request_spans import RequestSpans

# Roles that calls need. Those of health are for anybody; all others need Role.OBSERVE.
_ROLES: Mapping[str, Role | None] = {
    "ServerLive": None,
    "ServerReady": None,
    "ModelInfer": Role.RUN,
    "ModelStreamInfer": Role.RUN,
    "RepositoryModelLoad": Role.ADMINISTER,
    "RepositoryModelUnload": Role.ADMINISTER,
    "SystemSharedMemoryRegister": Role.ADMINISTER,
    "SystemSharedMemoryUnregister": Role.ADMINISTER,
}
_OK = "OK"

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class Call:
    """Call of a client."""

    # "grpc" or "http".
    face: str
    # The protocol's name of the call in gRPC, such as ModelInfer.
    name: str
    # Address of the client, and its host.
    peer: str
    host: str
    # Metadata of gRPC, or headers. Names are in lower case.
    metadata: Mapping[str, Any] = field(repr=False)
    # Returns the common name in the certificate of the client, empty without one.
    certificate: Callable[[], str]
    # Seconds within which the client wants the response; None for no limit.
    timeout_s: float | None = None
    # Set on the way.
    identity: Identity | None = None
    model: str = ""
    version: str = ""
    id: str = ""
    in_bytes: int = 0
    out_bytes: int = 0
    # As gRPC names it, for both faces; an error of HTTP that gRPC doesn't know, as HTTP names it.
    status: str = _OK

    @property
    def role(self) -> Role | None:
        """Role that it needs; None: anybody may make it."""
        return _ROLES.get(self.name, Role.OBSERVE)


class Calls:
    """All calls of a server. Only the server's loop uses it."""

    def __init__(self, guard: "Guard", log: AccessLog | None = None, spans: "RequestSpans | None" = None) -> None:
        """Create it. Without `log` and `spans` there are none."""
        self._guard = guard
        self._log = log
        self._spans = spans

    async def make(self, call: Call, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do the work of a call if its caller may make it.

        Raises:
            UnknownCaller: Nobody knows the caller.
            Denied: The role of the caller is too low.
            Busy: The caller has too many requests under way.
            NnrtError: As the work raises it.
        """
        began_ns = perf_counter_ns()
        try:
            with ExitStack() as stack:
                if self._spans is not None and call.role is not None:
                    stack.enter_context(self._spans.span(call))
                await self._guard.admit(call, stack)
                return await work()
        except NnrtError as error:
            call.status = grpc_status(error)
            raise
        except asyncio.CancelledError:
            call.status = "CANCELLED"
            raise
        except Exception:
            call.status = "INTERNAL" if call.status == _OK else call.status
            raise
        finally:
            self._guard.audit(call)
            if self._log is not None:
                self._log.write(call, perf_counter_ns() - began_ns)
