"""Tensors: their memory, how it is shared, and when it goes."""

import fcntl
import mmap
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from hypothesis import given, settings
from hypothesis import strategies as st
from part import examples
from shared_memory import held

from nnrt_client import (
    DataType,
    Device,
    DynamicShape,
    Format,
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    Runtime,
    Tensor,
    TensorDesc,
    UnavailableDevice,
)

FOUR = TensorDesc(DataType.FLOAT32, [4])
DYNAMIC = TensorDesc(DataType.FLOAT32, [-1, 4])
UNKNOWN = TensorDesc(DataType.UNKNOWN, [4])
NO_SHAPE = TensorDesc(DataType.FLOAT32)
GIB = 1 << 30


@pytest.fixture
def device(runtime: Runtime) -> Device:
    return runtime.device()


@pytest.fixture(autouse=True)
def gives_all_memory_back() -> Iterator[None]:
    """Every test closes its tensors; nothing of them may be left then."""
    before = held()
    yield
    assert held() == before


# ---- making


def test_a_tensor_has_exactly_its_size(device: Device) -> None:
    """Zeroed memory from 0 on, and a copy of the desc."""
    desc = TensorDesc(DataType.FLOAT16, [2, 3], Format.NHWC, "x")
    with Tensor(device, desc) as tensor:
        desc.shape = [7]
        assert (tensor.size_bytes, tensor.offset, tensor.device) == (12, 0, device)
        assert tensor.desc == TensorDesc(DataType.FLOAT16, [2, 3], Format.NHWC, "x")
        assert bytes(tensor.data_buffer) == bytes(12)
        assert os.fstat(tensor.fd).st_size == 12


def test_a_tensor_with_room(device: Device) -> None:
    """The size is as given, at least that of a fixed desc, and anything for one that is dynamic."""
    for desc, size_bytes in ((FOUR, 16), (FOUR, 17), (DYNAMIC, 1), (TensorDesc(DataType.UNKNOWN, [-1]), 5)):
        with Tensor.with_size(device, desc, size_bytes) as tensor:
            assert (tensor.size_bytes, len(tensor.data_buffer)) == (size_bytes, size_bytes)


def test_the_largest_tensor(device: Device) -> None:
    """1 GiB can be had and takes no memory before it is written."""
    with Tensor.with_size(device, FOUR, GIB) as tensor:
        tensor.data_buffer[-1] = 9
        assert os.pread(tensor.fd, 2, GIB - 1) == b"\x09"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(
            lambda device: Tensor(device, None),  # type: ignore[arg-type]
            InvalidParameter,
            id="no desc",
        ),
        pytest.param(
            lambda device: Tensor(None, FOUR),  # type: ignore[arg-type]
            InvalidParameter,
            id="no device",
        ),
        pytest.param(lambda device: Tensor(device, DYNAMIC), DynamicShape, id="dynamic"),
        pytest.param(lambda device: Tensor(device, NO_SHAPE), InvalidParameter, id="no shape"),
        pytest.param(lambda device: Tensor(device, UNKNOWN), InvalidParameter, id="no data type"),
        pytest.param(lambda device: Tensor(device, TensorDesc(DataType.INT8, [GIB + 1])), OutOfMemory, id="1 GiB + 1"),
        pytest.param(
            lambda device: Tensor(device, TensorDesc(DataType.INT8, [2**31 - 1] * 2)), OutOfMemory, id="2^62 bytes"
        ),
        pytest.param(
            lambda device: Tensor(device, TensorDesc(DataType.FLOAT64, [2**31 - 1] * 2)),
            InvalidParameter,
            id="more bytes than can be counted",
        ),
        pytest.param(
            lambda device: Tensor.with_size(device, None, 16),  # type: ignore[arg-type]
            InvalidParameter,
            id="size, no desc",
        ),
        pytest.param(lambda device: Tensor.with_size(device, FOUR, 15), InvalidParameter, id="size too small"),
        pytest.param(lambda device: Tensor.with_size(device, DYNAMIC, 0), InvalidParameter, id="size 0"),
        pytest.param(lambda device: Tensor.with_size(device, DYNAMIC, -1), InvalidParameter, id="size -1"),
        pytest.param(
            lambda device: Tensor.with_size(device, DYNAMIC, 1.5),  # type: ignore[arg-type]
            InvalidParameter,
            id="size 1.5",
        ),
        pytest.param(lambda device: Tensor.with_size(device, FOUR, GIB + 1), OutOfMemory, id="size 1 GiB + 1"),
        pytest.param(lambda device: Tensor.with_size(device, NO_SHAPE, 16), InvalidParameter, id="size, no shape"),
        pytest.param(lambda device: Tensor.with_size(device, UNKNOWN, 16), InvalidParameter, id="size, no data type"),
    ],
)
def test_what_no_tensor_can_be(device: Device, make: Callable[[Any], Tensor], error: type[NnrtError]) -> None:
    with pytest.raises(error):
        make(device)


def test_devices_must_live(start_daemon: StartDaemon) -> None:
    """New tensors need the device; those that are there keep their memory without it."""
    daemon = start_daemon()
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        with Tensor(device, FOUR) as tensor:
            tensor.numpy()[:] = [1, 2, 3, 4]
            daemon.kill()
            ways: list[Callable[[], Tensor]] = [
                lambda: Tensor(device, FOUR),
                lambda: Tensor.with_size(device, FOUR, 16),
                lambda: Tensor.from_fd(device, FOUR, tensor.fd, 16),
            ]
            for make in ways:
                with pytest.raises(UnavailableDevice):
                    while True:  # Until the death is known.
                        make().close()
            np.testing.assert_array_equal(tensor.numpy(), [1, 2, 3, 4])
    with pytest.raises(OperationForbidden):
        Tensor(device, FOUR)


# ---- over a descriptor


def test_two_tensors_over_one_descriptor(device: Device) -> None:
    """They see each other's bytes, and it does not matter which one goes first."""
    for is_first_closed in (True, False):
        first = Tensor.with_size(device, FOUR, 40)
        second = Tensor.from_fd(device, FOUR, first.fd, 40, 3)
        assert (second.size_bytes, second.offset, len(second.data_buffer)) == (40, 3, 37)
        assert second.fd != first.fd
        second.numpy()[:] = [1, 2, 3, 4]
        assert bytes(first.data_buffer[3:19]) == np.array([1, 2, 3, 4], np.float32).tobytes()
        closed, kept = (first, second) if is_first_closed else (second, first)
        closed.close()
        kept.data_buffer[20] = 77
        assert os.pread(kept.fd, 1, kept.offset + 20) == b"\x4d"
        kept.close()


@given(data=st.data())
@settings(max_examples=examples(60))
def test_regions(shared_device: Device, data: st.DataObject) -> None:
    """Any [offset, size) of a file is what the kernel reads and writes there, beyond pages too."""
    length = data.draw(st.integers(1, 3 * mmap.PAGESIZE))
    size = data.draw(st.integers(1, length))
    offset = data.draw(st.integers(0, size - 1))
    content = np.random.default_rng(length).bytes(length)
    desc = TensorDesc(DataType.UINT8, [data.draw(st.integers(1, size - offset))])
    with tempfile.TemporaryFile() as file:
        os.pwrite(file.fileno(), content, 0)
        with Tensor.from_fd(shared_device, desc, file.fileno(), size, offset) as tensor:
            assert tensor.data_buffer == content[offset:size]
            assert tensor.numpy().tobytes() == content[offset : offset + desc.byte_size()]
            at = data.draw(st.integers(0, size - offset - 1))
            tensor.data_buffer[at] ^= 0xFF
        written = bytearray(content)
        written[offset + at] ^= 0xFF
        assert os.pread(file.fileno(), length + 1, 0) == written


@pytest.fixture(scope="module")
def shared_device(shared_daemon: Any) -> Iterator[Device]:
    with Runtime([shared_daemon.address]) as runtime:
        yield runtime.device()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[dict[str, int]]:
    """Descriptors that can't be a tensor's, or only in part."""
    file = tmp_path / "file"
    file.write_bytes(bytes(64))
    with ExitStack() as stack:
        reading, writing = os.pipe()
        sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
        os.ftruncate(sealed, 64)
        fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        closed = os.open(file, os.O_RDWR)
        descriptors = {
            "file": os.open(file, os.O_RDWR),
            "read-only": os.open(file, os.O_RDONLY),
            "write-only": os.open(file, os.O_WRONLY),
            "path only": os.open(file, os.O_PATH),
            "pipe": reading,
            "other end of the pipe": writing,
            "folder": os.open(tmp_path, os.O_RDONLY),
            "device": os.open(os.devnull, os.O_RDWR),
            "sealed against writing": sealed,
        }
        for fd in descriptors.values():
            stack.callback(os.close, fd)
        os.close(closed)
        yield {**descriptors, "closed": closed, "negative": -1, "huge": 2**40, "none": None, "text": "3"}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "size_bytes", "offset"),
    [
        ("file", 65, 0),
        ("file", 64, 64),
        ("file", 64, 65),
        ("file", 64, -1),
        ("file", 64, 49),
        ("file", 15, 0),
        ("file", 0, 0),
        ("file", None, 0),
        ("file", 64, None),
        *(
            (name, 64, 0)
            for name in (
                "read-only",
                "write-only",
                "path only",
                "pipe",
                "other end of the pipe",
                "folder",
                "device",
                "sealed against writing",
                "closed",
                "negative",
                "huge",
                "none",
                "text",
            )
        ),
    ],
)
def test_descriptors_that_are_none(
    device: Device, opened: dict[str, int], name: str, size_bytes: Any, offset: Any
) -> None:
    """InvalidParameter, and no descriptor is kept."""
    count = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(InvalidParameter):
        Tensor.from_fd(device, FOUR, opened[name], size_bytes, offset)
    assert len(list(Path("/proc/self/fd").iterdir())) <= count
    with Tensor.from_fd(device, FOUR, opened["file"], 64, 48) as tensor:
        assert len(tensor.data_buffer) == 16


def test_more_over_a_descriptor_than_a_tensor_may_have(device: Device) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * GIB)
        with pytest.raises(OutOfMemory):
            Tensor.from_fd(device, FOUR, file.fileno(), 2 * GIB)


def test_nobody_pulls_the_memory_away(device: Device) -> None:
    """A tensor's file can't be cut short: touching it would end the process."""
    with Tensor(device, FOUR) as tensor, pytest.raises(PermissionError):
        os.ftruncate(tensor.fd, 0)


def test_memory_without_memfd(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a name serves as well where the system has no memfd."""
    monkeypatch.delattr(os, "memfd_create")
    with Tensor(device, FOUR) as tensor, Tensor.from_fd(device, FOUR, tensor.fd, 16) as other:
        assert "(deleted)" in str(Path(f"/proc/self/fd/{tensor.fd}").readlink())
        tensor.numpy()[:] = 3
        np.testing.assert_array_equal(other.numpy(), [3, 3, 3, 3])


def test_no_descriptors_left(device: Device) -> None:
    """OutOfMemory says so where the process may open no more files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    tensors: list[Tensor] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, limits[1]))
        with pytest.raises(OutOfMemory):
            while True:
                tensors.append(Tensor(device, FOUR))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for tensor in tensors:
            tensor.close()


# ---- elements


def test_numpy_is_the_memory_itself(device: Device) -> None:
    """Writable, and in the shape that the desc has now."""
    with Tensor.with_size(device, TensorDesc(DataType.INT16, [-1, 2]), 24) as tensor:
        with pytest.raises(DynamicShape):
            tensor.numpy()
        tensor.desc.shape = [3, 2]
        tensor.numpy()[:] = [[1, 2], [3, 4], [5, 6]]
        assert bytes(tensor.data_buffer[:12]) == bytes([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0])
        tensor.desc.shape = [2]
        np.testing.assert_array_equal(tensor.numpy(), [1, 2])
        tensor.desc.shape = [13]
        with pytest.raises(OperationFailed, match=r"has 24 bytes; its desc INT16\[13\] says 26"):
            tensor.numpy()
        tensor.desc.shape = [0, 2]
        assert tensor.numpy().shape == (0, 2)


# ---- the end


def test_views_outlive_their_tensor(device: Device) -> None:
    """Close raises nothing; the mapping goes with the last view, and with it a descriptor of its own."""
    descriptors, mappings = held()
    tensor = Tensor(device, FOUR)
    buffer, array = tensor.data_buffer, tensor.numpy()
    tensor.close()
    assert held() == (descriptors + 1, mappings + 1)
    array[:] = 5
    assert bytes(buffer[:4]) == np.float32(5).tobytes()
    del array
    assert held() == (descriptors + 1, mappings + 1)
    del buffer
    assert held() == (descriptors, mappings)


def test_a_closed_tensor(device: Device) -> None:
    """Says so, wherever its memory is asked for; closing again does nothing."""
    tensor = Tensor(device, FOUR)
    fd = tensor.fd
    tensor.close()
    taken = os.open(os.devnull, os.O_RDONLY)  # Most likely the same number, now another's.
    tensor.close()
    os.fstat(taken)
    os.close(taken)
    assert isinstance(fd, int)
    for ask in (
        lambda: tensor.fd,
        lambda: tensor.size_bytes,
        lambda: tensor.offset,
        lambda: tensor.data_buffer,
        tensor.numpy,
    ):
        with pytest.raises(InvalidParameter, match="the tensor is closed"):
            ask()
    assert tensor.desc == FOUR


def test_threads_close_a_tensor_once(device: Device) -> None:
    """However many try at a time."""
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            tensor = Tensor(device, FOUR)
            list(pool.map(lambda _, tensor=tensor: tensor.close(), range(8)))


def test_a_forgotten_tensor_leaves_nothing(device: Device) -> None:
    """One that nobody refers to gives its memory back, too; the fixture looks."""
    Tensor(device, FOUR)
