"""Messages that are short as bytes and large as objects."""

from pathlib import Path

import numpy as np
import pytest
from daemon_process import DaemonProcess
from raw_client import METHODS, Conversation, RawClient, attacked_daemon

from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.graph import MAX_NODES
from nnrt_hdi.v2 import device_pb2, model_pb2
from nnrt_hdi.wire.counts import UNCOUNTED_BYTES, require_moderate

pytestmark = pytest.mark.slow

MIB = 1 << 20


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, or a message in another one."""
    length, size = b"", len(content)
    while size >= 0x80:
        length, size = length + bytes((size & 0x7F | 0x80,)), size >> 7
    return bytes((number << 3 | 2,)) + length + bytes((size,)) + content


def graph(content: bytes) -> bytes:
    """A PrepareModelRequest with these bytes as its Model."""
    return field(1, content)


EMPTY = {"nodes": b"\x22\x00", "tensors": b"\x2a\x00", "sub_graphs": b"\x32\x00"}


def peak_bytes(daemon: DaemonProcess) -> int:
    """The most memory that a daemon has had."""
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kibibytes) << 10


@pytest.mark.parametrize("method", ["NnrtDevice.PrepareModel", "NnrtDevice.GetSupportedOperation"])
@pytest.mark.parametrize("what", EMPTY)
def test_empty_parts(what: str, method: str) -> None:
    """As many as a graph's length allows, and as a message's does: neither becomes objects."""
    with attacked_daemon() as daemon, RawClient(daemon.address) as client:
        before = peak_bytes(daemon)
        with pytest.raises(InvalidParameter, match=r"there are .* messages or more; use at most"):
            client.call(method, graph(EMPTY[what] * (7 * MIB)))
        assert peak_bytes(daemon) - before < 100 * MIB
        with pytest.raises(OutOfMemory, match="bytes; use at most"):
            client.call(method, graph(EMPTY[what] * (30 * MIB)))
        assert peak_bytes(daemon) - before < 300 * MIB


@pytest.mark.parametrize("method", ["PreparedModel.Run", "PreparedModel.RunStream"])
def test_empty_inputs(method: str) -> None:
    with attacked_daemon() as daemon, RawClient(daemon.address) as client:
        before = peak_bytes(daemon)
        with pytest.raises(
            InvalidParameter, match=r"there are .* messages or more; use at most|has more than .* fields"
        ):
            client.call(method, b"\x12\x00" * (30 * MIB))
        assert peak_bytes(daemon) - before < 300 * MIB


@pytest.mark.parametrize("method", ["NnrtDevice.PrepareModelFromModelCache", "NnrtDevice.PrepareOfflineModel"])
def test_settings_of_a_compilation(method: str) -> None:
    """Entries of a map, each with another name."""
    before_name = field(4, field(1, b"%07d" % 0))[:-7]
    entries = before_name + before_name.join(b"%07d" % number for number in range(2 * MIB))
    with attacked_daemon() as daemon, RawClient(daemon.address) as client:
        before = peak_bytes(daemon)
        with pytest.raises(InvalidParameter, match="ExtensionsEntry messages or more"):
            client.call(method, field(2, entries))
        assert peak_bytes(daemon) - before < 200 * MIB


@pytest.mark.parametrize(
    "method",
    sorted(
        {"NnrtDevice.GetDeviceStatus", "NnrtDevice.AllocateBuffer", "NnrtDevice.ReadBuffer", "PreparedModel.CancelRuns"}
        | {"PreparedModel.AwaitRun", "PreparedModel.Release", "PreparedModel.ExportModelCache", "DeviceSession.Open"}
        | {"NnrtDevice.GetCounters"}
    ),
)
def test_control_messages_are_short(method: str) -> None:
    refused = pytest.raises(OutOfMemory, match=r"the request has .* bytes; use at most 16384")
    with attacked_daemon() as daemon, RawClient(daemon.address) as client, refused:
        client.call(method, field(15, bytes(20_000)))


def test_what_is_sent_counts_while_it_is_worked_on() -> None:
    """A session can't have more in requests under way than it may hold."""
    with attacked_daemon("--session-bytes", str(4 * MIB)) as daemon, RawClient(daemon.address) as client:
        model_id = client.prepare_sum()
        assert model_id
        with pytest.raises(OutOfMemory, match="--session-bytes"):
            client.call("PreparedModel.RunStream", field(2, field(1, bytes(8 * MIB))))


def test_an_honest_client_meanwhile() -> None:
    """Runs of another client are made while bombs arrive."""
    with attacked_daemon() as daemon, RawClient(daemon.address) as honest, RawClient(daemon.address) as hostile:
        model_id = honest.prepare_sum()
        method = METHODS["NnrtDevice.GetSupportedOperation"]
        bombs = [Conversation(hostile.channel, method, hostile.metadata) for _ in range(4)]
        for bomb in bombs:
            bomb.send(graph(EMPTY["nodes"] * (7 * MIB)))
        for _ in range(10):
            (result,) = honest.run(model_id, np.array((1, 2, 3), np.float32))
            assert result.tolist() == [2, 4, 6]
        for bomb in bombs:
            with pytest.raises(NnrtError):
                bomb.receive()
            bomb.cancel()


def test_what_is_counted() -> None:
    """Parts of the parts too; the bytes of tensors, and what is no message, are not looked into."""
    request = device_pb2.PrepareModelRequest
    tensor = model_pb2.Tensor(data=model_pb2.SharedBuffer(inline=EMPTY["nodes"] * MIB), dims=[3] * 1000)
    padding = field(1, bytes(UNCOUNTED_BYTES))
    require_moderate(graph(padding + field(5, tensor.SerializeToString())), request)
    require_moderate(graph(padding + EMPTY["nodes"] * MAX_NODES), request)
    with pytest.raises(InvalidParameter, match="Node messages"):
        require_moderate(graph(padding + EMPTY["nodes"] * (MAX_NODES + 1)), request)
    # The last one has a group, over which protobuf passes, with what would be no Model outside it.
    hidden = b"\xc3\x3e" + field(1, b"\x0a\x7f") + b"\xc4\x3e" + graph(padding)
    assert request.FromString(hidden).HasField("model")
    for content in (b"\xff" * UNCOUNTED_BYTES, padding[:-1], b"\x2a\xff" * UNCOUNTED_BYTES, hidden):
        with pytest.raises(InvalidParameter, match="can't be decoded"):
            require_moderate(content, request)
    with pytest.raises(InvalidParameter, match="fields"):
        require_moderate(b"\x08\x01" * (1 << 23), request)
