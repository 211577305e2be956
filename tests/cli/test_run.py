"""`nnrt run`: from files to files."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model

from cli.command import NOBODY, json_output, nnrt, refused, saved
from nnrt_client import DataType, Format, Model, OperationType, RunTimes, load

IMAGES = np.random.default_rng(3).standard_normal((2, 8, 8, 1), np.float32)


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    return saved(convolution_model(), tmp_path / "conv.nnrt")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    np.save(tmp_path / "images.npy", IMAGES)
    return tmp_path / "images.npy"


def two_inputs(names: tuple[str, str] = ("a", "b"), outputs: tuple[str, str] = ("sum", "difference")) -> Model:
    """Of two times four numbers the sum and the difference."""
    model = Model()
    a, b = (model.input((4,), name=name) for name in names)
    results = [
        model.apply(operation, a, b, name=name)
        for operation, name in zip((OperationType.ADD, OperationType.SUB), outputs, strict=True)
    ]
    model.specify_inputs_and_outputs([a, b], results)
    model.finish()
    return model


def image_model(shape: tuple[int, ...], data_type: DataType, format: Format = Format.NONE) -> Model:
    """The image itself."""
    model = Model()
    x = model.input(shape, data_type, format=format, name="image")
    y = model.apply(OperationType.RESHAPE, x, list(shape), name="same")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


# ---- running


def test_outputs_go_to_files(shared_daemon: DaemonProcess, conv: Path, images: Path, tmp_path: Path) -> None:
    """One .npy each, with what a session computes; and the same from the cache the second time."""
    with load(conv, shared_daemon.address, cache=False) as session:
        (expected,) = session.run([IMAGES]).values()
    command = ("run", conv, "--device", shared_daemon.address, "--input")
    document = json_output(*command, f"image={images}", "-o", tmp_path / "o")
    (output,) = document["outputs"]
    assert document["model"] == "compiled"
    assert document["device"] == "reference_nnrt_v2_1"
    assert (output["data_type"], output["shape"]) == ("FLOAT32", [2, 10])
    assert (output["min"], output["max"]) == (expected.min(), expected.max())
    np.testing.assert_array_equal(np.load(output["file"]), expected)
    assert [path.name for path in (tmp_path / "o").iterdir()] == [Path(output["file"]).name]
    result = nnrt(*command, images)
    assert result.exit_code == 0
    assert "[2, 10]" in result.stdout
    assert "the model was restored" in result.stdout


def test_an_offline_model(restoring_daemon: DaemonProcess, conv: Path, images: Path, tmp_path: Path) -> None:
    """Compiled for certain shapes; nothing is left of it to compile."""
    device = ("--device", restoring_daemon.address)
    assert nnrt("compile", conv, *device, "--shape", "image=2,8,8,1", "-o", tmp_path / "offline").exit_code == 0
    from_offline = json_output("run", tmp_path / "offline", *device, "--input", images)
    from_model = json_output("run", conv, *device, "--input", images, "--no-cache")
    assert from_offline["model"] == "restored"
    assert from_offline["outputs"] == from_model["outputs"]


def test_an_archive_names_its_inputs(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(two_inputs(), tmp_path / "two.nnrt")
    np.savez(tmp_path / "both.npz", b=np.ones(4, np.float32), a=np.arange(4, dtype=np.float32))
    command = ("run", path, "--device", shared_daemon.address, "--input", tmp_path / "both.npz", "-o", tmp_path / "out")
    assert nnrt(*command).exit_code == 0
    assert np.load(tmp_path / "out/sum.npy").tolist() == [1, 2, 3, 4]
    assert np.load(tmp_path / "out/difference.npy").tolist() == [-1, 0, 1, 2]


def test_names_of_outputs_stay_in_their_directory(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """Whatever a model calls them, they are files there, and different ones."""
    path = saved(two_inputs(outputs=("../../up", "..*..*up")), tmp_path / "two.nnrt")
    np.savez(tmp_path / "both.npz", a=np.ones(4, np.float32), b=np.zeros(4, np.float32))
    output = tmp_path / "a" / "b"
    output.parent.mkdir()
    command = ("run", path, "--device", shared_daemon.address, "--input", tmp_path / "both.npz", "-o", output)
    outputs = json_output(*command)["outputs"]
    assert [one["name"] for one in outputs] == ["../../up", "..*..*up"]
    assert len({one["file"] for one in outputs}) == 2
    assert sorted(path.name for path in output.iterdir()) == sorted(Path(one["file"]).name for one in outputs)
    assert list(output.parent.iterdir()) == [output]


def test_numbers_that_json_has_not(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(identity_model(), tmp_path / "identity.nnrt")
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf], np.float32))
    (output,) = json_output("run", path, "--device", shared_daemon.address, "--input", tmp_path / "x.npy")["outputs"]
    assert (output["min"], output["max"]) == (None, None)


# ---- what is wrong


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "inputs without an array: a, b; give each by --input NAME=FILE"),
        (["x.npy"], "say for which input"),
        (["c=x.npy"], "there is no input 'c'; there are a, b"),
        (["c=x.png"], "there is no input 'c'; there are a, b"),
        (["a=x.npy", "a=x.npy"], "there is an array for 'a' already"),
        (["a=x.npz"], "an .npz file names its inputs itself"),
    ],
)
def test_wrong_use(tmp_path: Path, inputs: list[str], message: str) -> None:
    """It is told without asking any device."""
    path = saved(two_inputs(), tmp_path / "two.nnrt")
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    given = [part for one in inputs for part in ("--input", one.replace("x.", f"{tmp_path}/x."))]
    assert message in refused(2, "run", path, "--device", NOBODY, *given)


def test_how_it_is_compiled(shared_daemon: DaemonProcess, conv: Path, images: Path) -> None:
    """As with `nnrt compile`; what a device does not offer is refused."""
    command = ("run", conv, "--device", shared_daemon.address, "--input", images)
    assert "does not have the capability performance_mode" in refused(1, *command, "--performance-mode", "extreme")
    assert "--extension names x, x; give each once" in refused(2, *command, "--extension", "x=1", "--extension", "x=2")
    assert nnrt(*command, "--float16").exit_code == 0


def test_a_run_that_takes_too_long(start_daemon: StartDaemon, tmp_path: Path) -> None:
    path = saved(identity_model(), tmp_path / "identity")
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    command = ("run", path, "--device", start_daemon("--backend", "slow").address, "--input", tmp_path / "x.npy")
    assert "the run took longer than" in refused(1, *command, "--run-timeout", "0.1")
    assert "'nan' is not a finite number" in refused(2, *command, "--run-timeout", "nan")


def test_an_output_that_can_not_be_written(conv: Path, images: Path, tmp_path: Path) -> None:
    """No device is asked before that is known."""
    command = ("run", conv, "--device", NOBODY, "--input", images, "-o")
    assert "there is no such directory" in refused(1, *command, tmp_path / "no" / "out")
    assert "there is no such directory" in refused(1, *command, images)


class Exit:
    """Ends who unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (sys.exit, ("unpickled",))


# The head of an array of 16 TB, and no more.
ENORMOUS = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000,), }\n".rjust(
    118
)


def test_arrays_are_never_unpickled(shared_daemon: DaemonProcess, conv: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "evil.npy", np.array([Exit()], object), allow_pickle=True)
    message = refused(1, "run", conv, "--device", shared_daemon.address, "--input", tmp_path / "evil.npy")
    assert "it is no array file, or damaged" in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000,), }".ljust(128)
        + b"\n",
        b"\x93NUMPY\x02\x00" + (9000).to_bytes(4, "little") + b"(" * 9000,
    ],
    ids=["empty", "text", "enormous", "nested"],
)
def test_damaged_arrays(shared_daemon: DaemonProcess, conv: Path, tmp_path: Path, content: bytes) -> None:
    """A size that the file does not have is not believed."""
    (tmp_path / "x.npy").write_bytes(content)
    message = refused(1, "run", conv, "--device", shared_daemon.address, "--input", tmp_path / "x.npy")
    assert "it is no array file, or damaged" in message


@pytest.mark.parametrize("suffix", ["npy", "npz", "png"])
def test_files_that_never_end(shared_daemon: DaemonProcess, conv: Path, tmp_path: Path, suffix: str) -> None:
    """Nobody writes into the pipe."""
    os.mkfifo(tmp_path / f"x.{suffix}")
    message = refused(1, "run", conv, "--device", shared_daemon.address, "--input", f"{tmp_path}/x.{suffix}")
    assert message == f"Error: {tmp_path}/x.{suffix}: it is no regular file"


def test_arrays_that_do_not_fit(shared_daemon: DaemonProcess, conv: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 8, 8, 1)))
    command = ("run", conv, "--device", shared_daemon.address, "-o", tmp_path / "out", "--input")
    assert "it is float64[1, 8, 8, 1]; the model takes FLOAT32" in refused(1, *command, tmp_path / "x.npy")
    assert "No such file" in refused(1, *command, tmp_path / "missing.npy")
    assert not (tmp_path / "out").exists()


# ---- images


@pytest.mark.parametrize(
    ("shape", "data_type", "format", "mode"),
    [
        ((1, 2, 3, 3), DataType.UINT8, Format.NHWC, "RGB"),
        ((1, 2, 3, 3), DataType.UINT8, Format.NCHW, "RGB"),
        ((1, 3, 2, 3), DataType.FLOAT32, Format.NCHW, "RGB"),
        ((2, 3, 1), DataType.FLOAT16, Format.NONE, "L"),
        ((2, 3), DataType.UINT8, Format.NONE, "L"),
    ],
)
def test_images(
    shared_daemon: DaemonProcess,
    tmp_path: Path,
    shape: tuple[int, ...],
    data_type: DataType,
    format: Format,
    mode: str,
) -> None:
    """Two rows of three pixels, in the layout and the data type of the input; real numbers are 0..1.

    ONNX models with the channels last are imported as NCHW as well.
    """
    images = pytest.importorskip("PIL.Image", reason="the extra nnrt[images] is not installed")
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14
    expected = pixels if mode == "RGB" else pixels[:, :, 0]
    images.fromarray(expected).save(tmp_path / "image.png")
    if shape == (1, 3, 2, 3):
        expected = expected.transpose(2, 0, 1)
    path = saved(image_model(shape, data_type, format), tmp_path / "image.nnrt")
    command = ("run", path, "--device", shared_daemon.address, "-o", tmp_path / "out")
    assert nnrt(*command, "--input", f"image={tmp_path}/image.png").exit_code == 0
    (output,) = (np.load(file) for file in (tmp_path / "out").iterdir())
    assert output.shape == shape
    scale = 1 if data_type is DataType.UINT8 else 255
    np.testing.assert_allclose(output.reshape(expected.shape), expected / scale, rtol=1e-3)


def test_images_of_another_size(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image", reason="the extra nnrt[images] is not installed")
    images.new("RGB", (5, 4)).save(tmp_path / "image.png")
    path = saved(image_model((1, 2, 3, 3), DataType.UINT8), tmp_path / "image.nnrt")
    command = ("run", path, "--device", shared_daemon.address, "--input")
    assert "the image has 4 rows of 5" in refused(1, *command, f"image={tmp_path}/image.png")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
    assert "it is no PNG, or damaged" in refused(1, *command, f"image={tmp_path}/image.png")


def test_images_without_the_extra(
    shared_daemon: DaemonProcess, conv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    message = refused(2, "run", conv, "--device", shared_daemon.address, "--input", f"image={tmp_path}/image.png")
    assert "install nnrt[images]" in message


def test_an_input_that_is_no_image(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="the extra nnrt[images] is not installed")
    path = saved(two_inputs(), tmp_path / "two.nnrt")
    command = ("run", path, "--device", shared_daemon.address, "--input", f"a={tmp_path}/image.png")
    assert "an image needs FLOAT or UINT8" in refused(1, *command)


# ---- where its time went


def test_the_times_of_a_run(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A line for each part, and the one that made it slow; the sum is the time that the session took for it."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.2")
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    path = saved(identity_model(elements=4), tmp_path / "identity")
    command = ("run", path, "--device", daemon.address, "--input", tmp_path / "x.npy", "--times")
    document = json_output(*command)
    times = document["times"]
    assert times.pop("slowest") == "computed"
    assert times.pop("total_ns") == sum(times.values()) == pytest.approx(document["seconds"] * 1e9, rel=0.05)
    assert list(times) == list(RunTimes._fields)
    lines = nnrt(*command).stdout.splitlines()
    cells = {line.split()[0] for line in lines if line.strip()}
    assert {part.split("_")[0] for part in RunTimes._fields} <= cells
    assert any(line.startswith("slowest part: computed, ") for line in lines)
    assert "times" not in json_output(*command[:-1])
