"""All calls of a server, whichever face they came by: they are let in, traced and logged here."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from nnrt_client.serving.access_log import AccessLog
from nnrt_client.serving.call import OK, Call
from nnrt_client.serving.errors import grpc_status
from nnrt_client.serving.guard import Guard
from nnrt_hdi.errors import NnrtError

if TYPE_CHECKING:
    from nnrt_client.serving.request_spans import RequestSpans

ResultT = TypeVar("ResultT")


class Calls:
    """All calls of a server. Only the server's loop uses it."""

    def __init__(self, guard: Guard, log: AccessLog | None = None, spans: "RequestSpans | None" = None) -> None:
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
            call.status = "INTERNAL" if call.status == OK else call.status
            raise
        finally:
            self._guard.audit(call)
            if self._log is not None:
                self._log.write(call, perf_counter_ns() - began_ns)
