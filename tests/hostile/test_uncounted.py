"""What a daemon makes for clients besides the runs themselves: exports and replies."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import StartDaemon
from model_draft import Draft
from observer import Observer
from raw_client import RawClient
from waiting import DEADLINE_S, until
from ways import INLINE, REGION, describe_runs

from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.v2.prepared_model_pb2 import RunPacket

MIB = 1 << 20


@contextmanager
def prepared(address: str, values: int) -> Iterator[tuple[RawClient, int]]:
    """A client, and the model of y = x + so many values."""
    draft = Draft.sum_of_input_and([0.0] * values)
    with RawClient(address) as client:
        client.upload(*draft.uploads)
        yield client, client.prepare(draft.message).prepared.model_id


def test_an_export_is_refused_before_it_is_made(start_daemon: StartDaemon) -> None:
    """Where there is no room for as many bytes as the model was made of."""
    daemon = start_daemon("--backend", "cached", "--session-bytes", str(5 * MIB))
    too_large = prepared(daemon.address, 3 * MIB // 4)
    with too_large as (client, model_id), pytest.raises(OutOfMemory, match="--session-bytes"):
        export(client, model_id)
    assert "model exported" not in daemon.log()
    with prepared(daemon.address, MIB // 4) as (client, model_id):
        assert export(client, model_id).buffers
    assert "model exported" in daemon.log()


def test_an_export_counts_as_compiling(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """It is refused where the identity has spent its seconds."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    flags = ("--backend", "building", "--option", f"gate={gate}", "--identity-compile-s", "0.5")
    daemon = start_daemon(*flags)
    with RawClient(daemon.address) as client, ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        preparing = pool.submit(client.prepare, Draft.sum_of_input_and([1.0]).message)
        with gate.open("wb"):
            until(lambda: time.monotonic() - began > 0.6)
        model_id = preparing.result(DEADLINE_S).prepared.model_id
        with pytest.raises(OutOfMemory, match="--identity-compile-s"):
            export(client, model_id)


def test_outputs_count_until_the_next_run(start_daemon: StartDaemon) -> None:
    """Those of a stream that its client leaves open, too, and of one that has ended until nobody wants them."""
    daemon = start_daemon()
    with prepared(daemon.address, MIB // 4) as (client, model_id), Observer(daemon.address) as observer:
        buffer_id = client.allocate(MIB)
        before = observer.state().held_bytes
        kind = describe_runs(model_id, (MIB // 4,), (REGION, INLINE))
        stream = client.converse("PreparedModel.RunStream")
        stream.send(RunPacket(frames=kind.frame(run_id=1, regions=(buffer_id, 0, MIB), number=0)))
        assert len(stream.receive().frames) > MIB
        assert observer.state().held_bytes - before >= MIB
        stream.end_requests()
        with pytest.raises(StopIteration):
            stream.receive()
        client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[1]))
        observer.wait_for(lambda state: state.held_bytes == before)


def export(client: RawClient, model_id: int) -> "prepared_model_pb2.ExportModelCacheReply":
    reply: prepared_model_pb2.ExportModelCacheReply = client.ask(
        "PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)
    )
    return reply
