"""Fetches replies of runs whose links broke; the daemon keeps them until then (PreparedModel.AwaitRun)."""

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
from nnrt_client.session.errands import begin
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationFailed
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.run_messages import Chunk


class AwaitedRun:
    """Substitute for the link of a run: it fetches the reply."""

    def __init__(self, session: Session, run: Run, broken: BrokenCall | None, since: int) -> None:
        """Create it. `broken` says how the run's link ended, if it did; `since` at which attachment it was opened."""
        self.asked = run
        # The id that the run had on the link.
        self.run_id = run.id
        self.is_over = False
        self._session = session
        self._broken = broken
        self._was_cut_off = broken is not None and broken.is_cut_off
        self._attachment = since
        self._call: Any = None
        # Whether the daemon never got the run, so that it can be sent again.
        self.never_arrived = False

    def carries(self, run: Run) -> bool:
        """Return whether the run's reply is still to come; see `Link.carries`."""
        return self.asked is run and not self.is_over

    def stop(self, run: Run, reason: NnrtError) -> None:
        """Handle that the run was cancelled; see `Link.stop`."""
        if not run.is_written_by_daemon:  # Else its reply says when the daemon has stopped it.
            run.fail(reason)
            self.end()

    def end(self) -> None:
        """Stop fetching."""
        if self._call is not None:
            self._call.cancel()

    def fetch(self) -> None:
        """Fetch the reply and end the run with it, unless the daemon never got the run.

        Tries again each time that the session finds its daemon again.
        """
        run = self.asked
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
                self._broken = error.broken if isinstance(error, CutOff) else BrokenCall.of(error)
            if is_second_failure and not self._is_unknown(run, self._broken):
                assert failure is not None
                raise failure

    def _is_unknown(self, run: Run, broken: BrokenCall) -> bool:
        """Return whether the run can be sent again: the daemon doesn't know it, and it writes no tensors."""
        is_unknown = self._was_cut_off and isinstance(broken.error, ConnectionFailed)
        return is_unknown and run.tensors is None and run.given_up is None


class Fetches:
    """Fetches of replies, at most `most` at a time, in threads that may wait. Belongs to the loop."""

    def __init__(self, session: Session, runs: SessionRuns, most: int) -> None:
        self._session = session
        self._runs = runs
        self._most = most
        self._waiting: deque[AwaitedRun] = deque()
        self._under_way: set[AwaitedRun] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._under_way)

    def asked(self) -> list[Run]:
        """Return the runs whose replies are being fetched or wait for that."""
        return [awaited.asked for awaited in (*self._waiting, *self._under_way)]

    def add(self, run: Run, broken: BrokenCall | None, since: int) -> None:
        """Fetch the reply of a run as soon as a thread is free. `broken` says how its link broke, if it did."""
        if not (isinstance(run.link, AwaitedRun) and run.link.carries(run)):
            awaited = AwaitedRun(self._session, run, broken, since)
            self._waiting.append(awaited)
            run.link = awaited
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and len(self._under_way) < self._most:
            awaited = self._waiting[0]
            has_begun = begin(awaited.fetch, partial(self._runs.post, self._fetched, awaited))
            self._waiting.popleft()
            if has_begun:
                self._under_way.add(awaited)
            else:
                awaited.asked.fail(
                    ConnectionFailed("its reply can't be fetched: no thread is left", place=self._session.place)
                )

    def _fetched(self, awaited: AwaitedRun, _: None) -> None:
        if awaited in self._under_way:
            self._runs.forget(awaited.run_id)  # The reply is here; or the run never arrived and must not start later.
            if awaited.never_arrived:
                self._runs.send_over_grpc(awaited.asked, former_id=awaited.run_id)
            self._under_way.discard(awaited)
        self._begin_next()
        if self._runs.death is not None:
            self._runs.end_if_over()
