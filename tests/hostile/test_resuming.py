"""Clients that resume sessions and ask for runs as they like."""

from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from model_draft import Draft
from raw_client import DEADLINE_S, METHODS, Conversation, RawClient
from waiting import until
from ways import Answer, Kind, answers_of, describe_runs

from nnrt_client import ConnectionFailed, InvalidParameter, NnrtError, OperationFailed, OutOfMemory, UnavailableDevice
from nnrt_hdi import wire
from nnrt_hdi.chunks import INLINE_BYTES
from nnrt_hdi.enums import NodeType
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2, session_pb2
from nnrt_hdi.v2.prepared_model_pb2 import RunPacket

HELLO = session_pb2.SessionRequest(hello=session_pb2.Hello(client_name="raw"))
BEAT = session_pb2.SessionRequest(beat=session_pb2.Beat())
VALUES = (1, 2, 3)
X = np.array(VALUES, np.float32)
LONG_LEASE = ("--lease-s", "600")


def resumed(client: RawClient, session_id: bytes, *requests: Any) -> Conversation:
    """A stream that resumes a session, on the client's connection."""
    stream = Conversation(client.channel, METHODS["DeviceSession.Open"], ((wire.SESSION_METADATA, session_id),))
    stream.send(*requests)
    return stream


def require_refused(client: RawClient, session_id: bytes) -> None:
    stream = resumed(client, session_id, HELLO)
    with pytest.raises(UnavailableDevice, match="no such session; it ended, or the daemon was restarted"):
        stream.receive()
    stream.end_requests()


def model_of(client: RawClient) -> int:
    return client.prepare_sum()


def sent(model_id: int, run_id: int) -> RunPacket:
    return RunPacket(frames=describe_runs(model_id, X.shape).frame(X, run_id=run_id, number=0))


def answer_of(packet: RunPacket) -> Answer:
    (answer,) = answers_of(packet.frames)
    return answer


def await_run(client: RawClient, run_id: int) -> Answer:
    (packet,) = client.call("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=run_id))
    return answer_of(packet)


def awaiting(client: RawClient, run_id: int) -> Any:
    """An AwaitRun call that is under way."""
    method = METHODS["PreparedModel.AwaitRun"]
    call = client.channel.unary_unary(
        method.path,
        request_serializer=prepared_model_pb2.AwaitRunRequest.SerializeToString,
        response_deserializer=RunPacket.FromString,
    )
    return call.future(
        prepared_model_pb2.AwaitRunRequest(run_id=run_id), metadata=client.metadata, timeout=2 * DEADLINE_S
    )


def cancel_runs(client: RawClient, *run_ids: int) -> list[int]:
    """Those that were under way."""
    (reply,) = client.call("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=run_ids))
    return list(reply.stopping_run_ids)


def state_of(client: RawClient) -> Any:
    client.session.send(BEAT)
    return client.session.receive().beat.state


def error_of(packet: RunPacket) -> type[NnrtError]:
    return type(answer_of(packet).refusal)


@pytest.fixture
def slow(start_daemon: StartDaemon) -> DaemonProcess:
    """Runs end by cancellation only."""
    return start_daemon("--backend", "slow", "--session-streams", "4", *LONG_LEASE)


# ---- sessions


@pytest.mark.parametrize("session_id", [b"", b"guess", bytes(16), b"another sessions", bytes(4000)])
def test_session_that_is_not_there(shared_daemon: DaemonProcess, session_id: bytes) -> None:
    """Is refused before Hello, and no session is made in its place."""
    with RawClient(shared_daemon.address) as client:
        before = state_of(client).sessions
        require_refused(client, session_id)
        assert state_of(client).sessions == before


def test_session_ids_are_not_shared(shared_daemon: DaemonProcess) -> None:
    """Each session has an unguessable id of its own; one that was ended by Goodbye is not resumed."""
    with RawClient(shared_daemon.address) as client, RawClient(shared_daemon.address) as gone:
        session_id = gone.welcome.session_id
        assert len(session_id) == 16
        assert session_id != client.welcome.session_id
        gone.close()
        require_refused(client, session_id)


def test_resuming_takes_over(start_daemon: StartDaemon) -> None:
    """The old stream is broken off, again and again, and what the session holds stays."""
    daemon = start_daemon(*LONG_LEASE)
    with RawClient(daemon.address) as client:
        model_id, session_id = model_of(client), client.welcome.session_id
        for _ in range(20):
            stream = resumed(client, session_id, HELLO)
            assert stream.receive().welcome == client.welcome
            assert client.session.failure() is grpc.StatusCode.CANCELLED
            client.session = stream
        assert state_of(client).sessions == 1
        (result,) = client.run(model_id, X)
        assert result.tolist() == [2, 4, 6]


def test_many_streams_for_one_session(start_daemon: StartDaemon) -> None:
    """All at once: each takes over from another, and the daemon serves others."""
    daemon = start_daemon("--max-sessions", "2", *LONG_LEASE)
    with RawClient(daemon.address) as client:
        streams = [resumed(client, client.welcome.session_id, HELLO) for _ in range(60)]
        with RawClient(daemon.address) as other:
            model_of(other)
            for stream in streams:
                with suppress(grpc.RpcError):
                    assert stream.receive().HasField("welcome")
            former, client.session = client.session, resumed(client, client.welcome.session_id, HELLO)
            assert client.session.receive().HasField("welcome")
            for stream in (former, *streams):
                with pytest.raises((grpc.RpcError, StopIteration)):
                    stream.receive()
                assert stream.failure() is grpc.StatusCode.CANCELLED
            assert state_of(other).sessions == 2
        model_of(client)


def test_resumed_without_hello(start_daemon: StartDaemon) -> None:
    """A stream that breaks before Hello leaves the session as it was: waiting for its client."""
    daemon = start_daemon(*LONG_LEASE)
    with RawClient(daemon.address) as client, RawClient(daemon.address) as other:
        model_id = model_of(client)
        stream = resumed(other, client.welcome.session_id)
        assert client.session.failure() is grpc.StatusCode.CANCELLED
        stream.cancel()
        client.session = resumed(client, client.welcome.session_id, HELLO)
        assert client.session.receive().HasField("welcome")
        client.run(model_id, X)


def test_the_one_who_waits_longest_makes_room(start_daemon: StartDaemon) -> None:
    """Sessions without a client don't keep new clients out; those with one do."""
    daemon = start_daemon("--max-sessions", "3", *LONG_LEASE)
    with RawClient(daemon.address) as present:
        lost = [RawClient(daemon.address) for _ in range(2)]
        for client in lost:
            logged = daemon.log().count("is not connected any more")
            client.session.cancel()
            while daemon.log().count("is not connected any more") == logged:
                state_of(present)
        present_id, first, second = (client.welcome.session_id for client in (present, *lost))
        with RawClient(daemon.address) as new:
            assert state_of(new).sessions == 3
            require_refused(present, first)
            stream = resumed(present, second, HELLO)
            assert stream.receive().welcome.session_id == second
            with pytest.raises(OutOfMemory, match="serves 3 clients, its limit"):
                RawClient(daemon.address)
            stream.send(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))
            assert stream.failure() is grpc.StatusCode.OK
        assert present_id == present.welcome.session_id
    for client in lost:
        client.channel.close()


# ---- runs


def test_runs_that_are_not_known(slow: DaemonProcess) -> None:
    """Waiting for one says so at once; cancelling one is no error."""
    with RawClient(slow.address) as client:
        for run_id in (0, 1, 2**64 - 1):
            with pytest.raises(ConnectionFailed, match=f"run {run_id} is not known"):
                await_run(client, run_id)
            cancel_runs(client, run_id, run_id)
        cancel_runs(client)
        with pytest.raises(InvalidParameter, match="1025 run_ids were given; give at most 1024"):
            cancel_runs(client, *range(1025))


def test_run_id_used_twice(slow: DaemonProcess) -> None:
    """The second is refused, and the first goes on."""
    with RawClient(slow.address) as client:
        model_id = model_of(client)
        first, second = client.converse("PreparedModel.RunStream"), client.converse("PreparedModel.RunStream")
        first.send(sent(model_id, 1))
        until(lambda: state_of(client).running == 1)
        second.send(sent(model_id, 1))
        assert error_of(second.receive()) is InvalidParameter
        assert state_of(client).running == 1
        second.cancel()
        cancel_runs(client, 1)
        assert error_of(first.receive()) is OperationFailed
        first.cancel()


def test_broken_stream_stops_no_run(slow: DaemonProcess) -> None:
    """They go on, until they are cancelled or their session ends."""
    with RawClient(slow.address) as client, RawClient(slow.address) as other:
        model_id = model_of(client)
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_id, 5))
        until(lambda: state_of(other).running == 1)
        stream.cancel()
        # One of two is sent away, and then both have arrived.
        calls = [awaiting(client, 5), awaiting(client, 5)]
        until(lambda: any(call.done() for call in calls))
        (waiting,) = (call for call in calls if not call.done())
        assert state_of(other).running == 1
        cancel_runs(client, 5)
        assert error_of(waiting.result(DEADLINE_S)) is OperationFailed
        until(lambda: state_of(other).running == 0)
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_id, 6))
        until(lambda: state_of(other).running == 1)
        client.close()
        until(lambda: (state_of(other).running, state_of(other).sessions) == (0, 1))
        stream.cancel()


def test_cancellation_that_comes_first(slow: DaemonProcess) -> None:
    """Its run doesn't begin."""
    with RawClient(slow.address) as client:
        model_id = model_of(client)
        assert cancel_runs(client, 7) == []
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_id, 7))
        assert error_of(stream.receive()) is OperationFailed
        stream.cancel()
    assert "run started" not in slow.log()


def test_cancellation_says_what_is_still_to_end(slow: DaemonProcess) -> None:
    """A run under way is named, once; its reply comes where it was sent. One that is over, or unknown, is not."""
    with RawClient(slow.address) as client:
        model_id = model_of(client)
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_id, 3))
        until(lambda: state_of(client).running == 1)
        assert cancel_runs(client, 2, 3, 4) == [3]
        assert error_of(stream.receive()) is OperationFailed
        assert cancel_runs(client, 3) == []
        stream.cancel()


def test_many_who_wait_for_a_run(slow: DaemonProcess) -> None:
    """The last one does; those before it are sent away, or refused for their number."""
    with RawClient(slow.address) as client:
        model_id = model_of(client)
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_id, 9))
        until(lambda: state_of(client).running == 1)
        calls = [awaiting(client, 9) for _ in range(40)]
        until(lambda: sum(not call.done() for call in calls) == 1)
        errors = [wire.error_detail_of(call.exception()) for call in calls if call.done()]
        assert {type(error) for error in errors} <= {OperationFailed, OutOfMemory}
        (waiting,) = (call for call in calls if not call.done())
        model_of(client)  # Other calls have their places.
        cancel_runs(client, 9)
        assert error_of(waiting.result(DEADLINE_S)) is OperationFailed
        stream.cancel()


def test_waiting_is_given_up(slow: DaemonProcess) -> None:
    """Its place is free again, though the run goes on."""
    with RawClient(slow.address) as client:
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_of(client), 9))
        until(lambda: state_of(client).running == 1)

        def finds_a_place() -> bool:
            try:
                await_run(client, 1000)
            except OutOfMemory:
                return False
            except ConnectionFailed:
                return True
            return False

        for _ in range(10):
            for call in [awaiting(client, 9) for _ in range(4)]:
                call.cancel()
            until(finds_a_place)
        cancel_runs(client, 9)
        stream.cancel()


def test_reply_of_a_broken_stream_is_kept(start_daemon: StartDaemon) -> None:
    """Until the client says that it has it; it counts as the session's memory meanwhile."""
    daemon = start_daemon(*LONG_LEASE)
    with RawClient(daemon.address) as client:
        model_id = model_of(client)
        before = state_of(client).held_bytes
        stream = client.converse("PreparedModel.RunStream")
        stream.send(sent(model_id, 3))
        assert answer_of(stream.receive()).first(3) == [2, 4, 6]
        stream.cancel()
        until(lambda: state_of(client).held_bytes > before)
        for _ in range(2):
            assert await_run(client, 3).first(3) == [2, 4, 6]
        cancel_runs(client, 3)
        assert state_of(client).held_bytes == before
        with pytest.raises(ConnectionFailed):
            await_run(client, 3)


@pytest.mark.parametrize("in_chunks", [False, True], ids=["inline", "in chunks"])
def test_replies_name_their_runs(shared_daemon: DaemonProcess, in_chunks: bool) -> None:
    """Those of runs that fail, of runs that are awaited, and those that chunks follow."""
    x = np.ones(INLINE_BYTES // 4 + 1 if in_chunks else 1, np.float32)
    with RawClient(shared_daemon.address) as client:
        draft = Draft()
        operands = [draft.input([-1]), draft.constant(np.ones(1, np.float32))]
        draft.node(NodeType.ADD_FUSION, operands, [draft.output([-1])])
        kind = describe_runs(client.prepare(draft.message).prepared.model_id, x.shape)
        stream = client.converse("PreparedModel.RunStream")

        def ask(kind: Kind, run_id: int) -> Answer:
            stream.send(RunPacket(frames=kind.frame(x, run_id=run_id)))
            return answer_of(stream.receive())

        for run_id in (7, 2**64 - 1):
            assert ask(kind, run_id).run_id == run_id
            if in_chunks:
                assert sum(len(stream.receive().chunk) for _ in range(2)) == x.nbytes
        refused = ask(describe_runs(1000, x.shape), 8)
        assert refused.run_id == 8 and isinstance(refused.refusal, UnavailableDevice)
        assert ask(kind, 9).run_id == 9
        stream.cancel()
        head, *chunks = client.call("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=9))
        assert answer_of(head).run_id == 9 and len(chunks) == (2 if in_chunks else 0)


def test_kept_replies_are_bounded(start_daemon: StartDaemon) -> None:
    """By the session's memory: what doesn't fit is not kept, and what was keeps its place."""
    daemon = start_daemon("--session-bytes", "16384", *LONG_LEASE)
    with RawClient(daemon.address) as client:
        model_id = model_of(client)
        for run_id in range(1, 40):
            stream = client.converse("PreparedModel.RunStream")
            stream.send(sent(model_id, run_id))
            stream.receive()
            stream.cancel()
        until(lambda: state_of(client).held_bytes > 14_000)
        assert state_of(client).held_bytes <= 16384
        kept = set()
        for run_id in range(1, 40):
            with suppress(ConnectionFailed):
                await_run(client, run_id)
                kept.add(run_id)
        assert 0 < len(kept) < 39
        assert state_of(client).held_bytes <= 16384


# ---- compilations


def test_repeated_request_gets_the_first_result(start_daemon: StartDaemon) -> None:
    """As long as that model is there. Without an id, or with another one, each call makes a model."""
    daemon = start_daemon("--backend", "cached", "--share-models", "none")
    message = Draft.sum_of_input_and(VALUES).message

    def prepared(client: RawClient, request_id: bytes) -> int:
        request = device_pb2.PrepareModelRequest(model=message, request_id=request_id)
        return int(client.ask("NnrtDevice.PrepareModel", request).prepared.model_id)

    with RawClient(daemon.address) as client, RawClient(daemon.address) as other:
        once, again = bytes(16), b"\1" * 16
        first = prepared(client, once)
        assert prepared(client, once) == first
        assert daemon.log().count("compiled with") == 1
        assert len({first, prepared(client, again), prepared(client, b""), prepared(client, b"")}) == 4
        client.call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=first))
        assert prepared(client, once) != first
        prepared(other, again)
        assert daemon.log().count("compiled with") == 6
        for wrong in (b"1", bytes(17), bytes(100_000)):
            with pytest.raises(InvalidParameter, match=f"request_id has {len(wrong)} bytes; use 16, or none"):
                prepared(client, wrong)
