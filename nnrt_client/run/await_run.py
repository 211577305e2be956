"""Fetches of replies that the daemon keeps after a run's link broke (PreparedModel.AwaitRun)."""

from collections import deque
from functools import partial
from time import perf_counter_ns
from typing import Any

import grpc

from nnrt_client.run.chunked_reply import ChunkedReply
from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.reply import Reply
from nnrt_client.run.run import Run
from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.session.broken_call import BrokenCall, CutOff
from nnrt_client.session.errands import start_in_worker
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationFailed
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.run_messages import Chunk


class AwaitedRun:
    """Run whose reply is fetched by an AwaitRun call. It stands in for the link of the run."""

    def __init__(self, session: Session, run: Run, broken: BrokenCall | None, since: int) -> None:
        """Create it.

        Args:
            session: The session of the run.
            run: The run.
            broken: How the run's link broke, or None if it works and the reply was only too long for it.
            since: The session's attachment at which the link was opened.
        """
        self.run = run
        # The run's id on the link; the run gets a new id if it is sent again.
        self.run_id = run.id
        self.is_over = False
        self._session = session
        self._broken = broken
        self._was_cut_off = broken is not None and broken.is_cut_off
        self._attachment = since
        self._call: Any = None
        # Whether the daemon never got the run. If so, the client sends it again.
        self.never_arrived = False

    def carries(self, run: Run) -> bool:
        """Return whether the reply of this run is still being fetched; see `Link.carries`."""
        return self.run is run and not self.is_over

    def stop(self, run: Run, reason: NnrtError) -> None:
        """End the cancelled run, unless the daemon may still write its outputs; see `Link.stop`."""
        if not run.is_written_by_daemon:  # Else the reply shows that the daemon has stopped the run.
            run.fail(reason)
            self.end()

    def end(self) -> None:
        """Stop fetching."""
        if self._call is not None:
            self._call.cancel()

    def fetch(self) -> None:
        """Fetch the reply and end the run with it. Set `never_arrived` if the daemon never got the run.

        If the connection breaks, this tries again as soon as the session is connected again.
        """
        run = self.run
        try:
            self._fetch(run)
        except Exception as error:
            run.fail(nnrt_error_of(error, "its reply could not be fetched"))
        finally:
            self.is_over = True
            if not run.ended.is_set and not self.never_arrived:
                run.fail(OperationFailed("its reply could not be fetched"))

    def _fetch(self, run: Run) -> None:
        session = self._session
        failure: NnrtError | None = None
        while not run.ended.is_set:
            if self._broken is not None:
                broken = self._broken
                failure = session.verdict(broken, "PreparedModel.RunStream", since=self._attachment)
                if self._is_unknown(run, broken):
                    self.never_arrived = session.is_alive
                    return
                if not session.is_alive or not broken.is_cut_off:
                    raise failure
            is_second_failure = failure is not None and self._attachment == session.attachment
            self._attachment = session.attachment
            try:
                self._call = session.start("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=run.id))
                if run.ended.is_set:
                    self._call.cancel()
                reply = next(self._call, None)
                if reply is None:
                    raise OperationFailed("the daemon ended the run", place=session.place)
                run.stamps.answered_ns = perf_counter_ns()
                if isinstance(reply, Chunk):
                    raise OperationFailed("the daemon sent a chunk in place of a reply", place=session.place)
                ChunkedReply(run, Reply(reply), self._call, session.compressor).finish()
                return
            except (grpc.RpcError, CutOff) as error:
                self._broken = error.broken if isinstance(error, CutOff) else BrokenCall.from_rpc_error(error)
            if is_second_failure and not self._is_unknown(run, self._broken):
                assert failure is not None
                raise failure

    def _is_unknown(self, run: Run, broken: BrokenCall) -> bool:
        """Return whether the run can be sent again: the daemon doesn't know its id, and it uses no Tensors."""
        is_unknown = self._was_cut_off and isinstance(broken.error, ConnectionFailed)
        return is_unknown and run.tensors is None and run.given_up is None


class Fetches:
    """Queue of replies to fetch. At most `most` threads fetch at a time. Only the loop calls this."""

    def __init__(self, session: Session, runs: SessionRuns, most: int) -> None:
        self._session = session
        self._runs = runs
        self._most = most
        self._waiting: deque[AwaitedRun] = deque()
        self._under_way: set[AwaitedRun] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._under_way)

    def under_way(self) -> list[Run]:
        """Return the runs whose replies are being fetched or will be."""
        return [awaited.run for awaited in (*self._waiting, *self._under_way)]

    def add(self, run: Run, broken: BrokenCall | None, since: int) -> None:
        """Fetch the reply of a run as soon as a thread is free. See `AwaitedRun` for the arguments."""
        if not (isinstance(run.link, AwaitedRun) and run.link.carries(run)):
            awaited = AwaitedRun(self._session, run, broken, since)
            self._waiting.append(awaited)
            run.link = awaited
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and len(self._under_way) < self._most:
            awaited = self._waiting[0]
            has_begun = start_in_worker(awaited.fetch, partial(self._runs.post, self._fetched, awaited))
            self._waiting.popleft()
            if has_begun:
                self._under_way.add(awaited)
            else:
                awaited.run.fail(
                    ConnectionFailed("its reply can't be fetched: no thread is left", place=self._session.place)
                )

    def _fetched(self, awaited: AwaitedRun, _: None) -> None:
        if awaited in self._under_way:
            # The daemon may free the reply. If the run never arrived, it must not start later under this id.
            self._runs.forget(awaited.run_id)
            if awaited.never_arrived:
                self._runs.send_over_grpc(awaited.run, former_id=awaited.run_id)
            self._under_way.discard(awaited)
        self._begin_next()
        if self._runs.death is not None:
            self._runs.end_if_over()
