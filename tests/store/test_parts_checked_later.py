"""Parts of a cache that a client brings: taken at once, and checked while the backend restores the model."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from storing_backend import StoringBackend
from storing_device import ask, device_on, session_of

from nnrt_client import Model, OperationType
from nnrt_client.model.model import parts_of
from nnrt_device_service.device import Device
from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.memory.shared_files import KnownParts
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build, reserved_parts
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import ModelConfig, Origin, PreparedModel
from nnrt_hdi.errors import InvalidFile, OutOfMemory, Unsupported
from nnrt_hdi.graph import Constant
from nnrt_hdi.part import Part

PIECE = 1 << 20
DATA = np.random.default_rng(2).bytes(3 * PIECE + 5)
PART = Constant(Part.of(DATA).sha256, len(DATA))
WRONG = DATA[:-1] + bytes([DATA[-1] ^ 1])


class Careless(StoringBackend):
    """Restores whatever it gets, and counts what is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0
        self.fails = False

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        if self.fails:
            raise Unsupported("nothing is restored")
        self.open += 1
        prepared = self.prepare(parts_of(model()).graph, config, lambda fraction: None)
        prepared.close = self._close  # type: ignore[method-assign]
        return prepared

    def _close(self) -> None:
        self.open -= 1


def model(weights: bytes = bytes(8)) -> Model:
    """y = x + weights."""
    model = Model()
    x = model.input((1,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ADD, x, np.frombuffer(weights, "f4"))])
    model.finish()
    return model


@pytest.fixture
def backend() -> Careless:
    return Careless()


@pytest.fixture
def device(backend: Careless) -> Device:
    return Device(backend, Settings())


def restore(device: Device, session: Session) -> Prepared | MissingConstants:
    return device.models.restore([PART], Build(session, ModelConfig(), Progress(lambda stage, fraction: None)))


def send(session: Session, data: bytes) -> None:
    for start in range(0, len(data), PIECE):
        session.constants.write(PART.sha256, len(data), start, data[start : start + PIECE])


def test_right_parts(device: Device, backend: Careless) -> None:
    with session_of(device) as session:
        assert restore(device, session) == MissingConstants({PART.sha256: 0})
        send(session, DATA)
        for origin in (Origin.RESTORED, Origin.SHARED):
            made = restore(device, session)
            assert isinstance(made, Prepared)
            assert made.origin is origin
        assert backend.open == 1


def test_wrong_parts(device: Device, backend: Careless) -> None:
    """The model is given up, if there is one, and the part is missing again."""
    with session_of(device) as session:
        restore(device, session)
        for fails in (False, True, False):
            backend.fails = fails
            send(session, WRONG)
            with pytest.raises(InvalidFile, match="another SHA-256"):
                restore(device, session)
            assert not backend.open
            assert not session.budget.used_bytes
            assert restore(device, session) == MissingConstants({PART.sha256: 0})
        send(session, DATA)
        assert isinstance(restore(device, session), Prepared)


def test_nothing_else_is_made_of_wrong_parts(tmp_path: Path) -> None:
    """Neither a compiled model, which would get into the store under the digests of other weights, nor a program."""
    graph = parts_of(model(DATA[: 2 * PIECE])).graph
    (weights,) = graph.constants.values()
    assert weights.data is not None
    wrong = bytes(weights.size_bytes)
    device = device_on(tmp_path / "store", Careless())
    named = Constant(weights.sha256, weights.size_bytes)
    with session_of(device) as session, ExitStack() as undo:
        device.models.restore([named], Build(session, ModelConfig(), Progress(lambda stage, fraction: None)))
        uses: Sequence[Callable[[], object]] = (
            lambda: ask(device, session, graph),
            lambda: reserved_parts(session, [named], undo),
        )
        for use in uses:
            session.constants.write(weights.sha256, weights.size_bytes, 0, wrong)
            with pytest.raises(InvalidFile, match="another SHA-256"):
                use()
        assert isinstance(ask(device, session, graph), MissingConstants)
    assert not list((tmp_path / "store").glob("*.nnrtmodel"))


def test_a_daemon_that_signs_caches_checks_first(tmp_path: Path, backend: Careless) -> None:
    """What is signed is the digest of a part."""
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    device = Device(backend, Settings(cache_key=str(key)))
    with session_of(device) as session:
        restore(device, session)
        with pytest.raises(InvalidFile, match="another SHA-256"):
            send(session, WRONG)


def test_parts_that_nobody_asked_for_are_checked_at_once(device: Device) -> None:
    with session_of(device) as session, pytest.raises(InvalidFile, match="another SHA-256"):
        send(session, WRONG)


def test_one_thread_digests_for_a_session(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts come, and none for small ones, which are checked at once."""
    works: list[Callable[[], object]] = []
    monkeypatch.setattr(Threads, "run", lambda threads, work: works.append(work))
    parts = [bytes([number]) * PIECE for number in range(4)]
    small = Part.of(b"small")
    digests = [*(Part.of(part).sha256 for part in parts), small.sha256]
    with session_of(device) as session:
        session.constants.check_later(digests, device.threads, KnownParts())
        for part in parts[:3]:
            session.constants.write(Part.of(part).sha256, PIECE, 0, part)
        assert len(works) == 1
        works.pop()()
        session.constants.write(Part.of(parts[3]).sha256, PIECE, 0, parts[3])
        assert len(works) == 1, "the one before has ended"
        with pytest.raises(InvalidFile, match="another SHA-256"):
            session.constants.write(small.sha256, 5, 0, b"SMALL")
        session.constants.require_checked(digests[:4])
        works.pop()()


def test_what_is_dropped_is_not_digested(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    works: list[Callable[[], object]] = []
    monkeypatch.setattr(Threads, "run", lambda threads, work: works.append(work))
    with session_of(device) as session:
        session.constants.check_later([PART.sha256], device.threads, KnownParts())
        send(session, DATA)
        upload = session.constants._uploads[PART.sha256]
        session.constants.clear()
        works.pop()()
        assert not upload.is_digested


def test_no_thread_is_left(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then whoever needs the part checks it."""

    def none_left(*_: object) -> None:
        raise OutOfMemory("no more threads")

    with session_of(device) as session:
        restore(device, session)
        with monkeypatch.context() as patch:
            patch.setattr(Threads, "run", none_left)
            send(session, WRONG)
        with pytest.raises(InvalidFile, match="another SHA-256"):
            restore(device, session)
        send(session, DATA)
        assert isinstance(restore(device, session), Prepared)


def test_right_bytes_that_come_after_wrong_ones_were_taken(device: Device) -> None:
    """A caller that holds the wrong ones learns it, although the digest is right by now."""
    with session_of(device) as session:
        restore(device, session)
        send(session, WRONG)
        part = [Constant(PART.sha256, len(DATA))]
        assert not isinstance(session.constants.acquire_all(part, is_checked=False), MissingConstants)
        with pytest.raises(InvalidFile, match="another SHA-256"):
            session.constants.acquire_all(part)
        send(session, DATA)
        with pytest.raises(InvalidFile, match="another SHA-256"):
            session.constants.require_checked([PART.sha256])
        session.constants.release([PART.sha256])
        session.constants.require_checked([PART.sha256])
