"""The decoder of examples/generate: its text, its gradients, and its models of ONNX, which compute what it does."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import warm
from daemon_process import DaemonProcess
from decoder import Decoder, Sizes, Tokens, random_weights
from export import fixed, growing
from onnx_models import AnyArray, run_onnxruntime
from text import Tokenizer, pages
from train_decoder import load

from nnrt_client import Batching, Way
from nnrt_client import load as load_model

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/generate"
SIZES = Sizes(tokens=40, width=32, heads=4, layers=2)
ROOM, STEPS = 24, 20

Outputs = Mapping[str, AnyArray]
Run = Callable[[dict[str, AnyArray]], Outputs]
Named = Callable[[Decoder], onnx.ModelProto]


def fixed_small(decoder: Decoder) -> onnx.ModelProto:
    return fixed(decoder, ROOM)


KINDS: dict[str, Named] = {"growing": growing, "fixed": fixed_small}


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    """A decoder whose weights are larger than those that training begins with: all of its parts count."""
    rng = np.random.default_rng(3)
    shapes = {name: weight.shape for name, weight in random_weights(SIZES).items()}
    drawn = {
        name: rng.normal(size=shape) / np.sqrt(shape[0]) if len(shape) > 1 else rng.uniform(0.5, 1.5, shape)
        for name, shape in shapes.items()
    }
    return Decoder(SIZES, {name: weight.astype("f4") for name, weight in drawn.items()})


@pytest.fixture(scope="module")
def texts() -> Tokens:
    return np.random.default_rng(4).integers(0, SIZES.tokens, (2, STEPS))


def nothing(room: int, batch: int) -> dict[str, AnyArray]:
    """The caches before the first token."""
    shape = (batch, SIZES.heads, room, SIZES.head_width)
    kinds = [f"{layer}.{kind}" for layer in range(SIZES.layers) for kind in ("key", "value")]
    return {f"past_key_values.{kind}": np.zeros(shape, np.float32) for kind in kinds}


def logits(run: Run, kind: str, texts: Tokens, mask: Tokens | None = None) -> Iterator[AnyArray]:
    """The logits of a prompt of five tokens, then those of each further token, with what the run before remembered."""
    batch = len(texts)
    mask = np.ones_like(texts) if mask is None else mask
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    caches = nothing(0 if kind == "growing" else ROOM, batch)
    begin = 0
    for end in range(5, texts.shape[1] + 1):
        feeds = {"input_ids": texts[:, begin:end], **caches}
        if kind == "growing":
            feeds |= {"attention_mask": mask[:, :end], "position_ids": positions[:, begin:end]}
        else:
            feeds |= {"positions": np.full(batch, begin)}
        outputs = run({name: np.ascontiguousarray(array) for name, array in feeds.items()})
        yield outputs["logits"]
        caches = {name: outputs[name.replace("past_key_values", "present")] for name in caches}
        begin = end


def on_onnxruntime(proto: onnx.ModelProto) -> Run:
    names = [output.name for output in proto.graph.output]
    return lambda feeds: dict(zip(names, run_onnxruntime(proto, feeds), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_computes_what_the_decoder_does(kind: str, decoder: Decoder, texts: Tokens) -> None:
    given = np.concatenate(list(logits(on_onnxruntime(KINDS[kind](decoder)), kind, texts)), axis=1)
    np.testing.assert_allclose(given, decoder.logits(texts), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_computes_it_with_operators(
    kind: str, decoder: Decoder, texts: Tokens, each_daemon: DaemonProcess
) -> None:
    proto = KINDS[kind](decoder).SerializeToString()
    with load_model(proto, each_daemon.address, batching=Batching(16), ways=["operators"]) as session:
        assert session.way is Way.OPERATORS
        given = np.concatenate(list(logits(session.run, kind, texts)), axis=1)
    np.testing.assert_allclose(given, decoder.logits(texts), atol=1e-4)


def test_texts_of_other_lengths_fill_one_batch(decoder: Decoder, texts: Tokens, each_daemon: DaemonProcess) -> None:
    """Each row writes at its own position, and sees only what lies before it, even where others have written more."""
    lengths = [7, 15]
    with load_model(fixed_small(decoder).SerializeToString(), each_daemon.address, batching=Batching(16)) as session:
        # Both prompts have the length of the longer one: what is too much is written over, or isn't seen.
        given = session.run({"input_ids": texts[:, :15], "positions": np.zeros(2, "i8"), **nothing(ROOM, 2)})
        caches = {name: given[name.replace("past_key_values", "present")] for name in nothing(ROOM, 2)}
        following = np.array([[1], [2]])
        given = session.run({"input_ids": following, "positions": np.array(lengths), **caches})
    for row, length in enumerate(lengths):
        whole = np.concatenate([texts[row, :length], following[row]])
        np.testing.assert_allclose(given["logits"][row, -1], decoder.logits(whole[None])[0, -1], atol=1e-4)


def test_what_fills_a_short_text_up_is_not_seen(decoder: Decoder, texts: Tokens) -> None:
    mask = np.ones_like(texts)
    mask[0, :3] = 0
    *_, last = logits(on_onnxruntime(growing(decoder)), "growing", texts, mask)
    for given, text in zip(last, (texts[0, 3:], texts[1]), strict=True):
        np.testing.assert_allclose(given[-1], decoder.logits(text[None])[0, -1], atol=1e-4)


def test_gradients_are_the_slopes_of_the_loss() -> None:
    sizes = Sizes(tokens=11, width=8, heads=2, layers=2)
    weights = {name: weight.astype(np.float64) for name, weight in random_weights(sizes).items()}
    exact = Decoder(sizes, weights)  # type: ignore[arg-type]  # Doubles, for slopes without rounding.
    rng = np.random.default_rng(5)
    texts, shift = rng.integers(0, 11, (2, 7)), 1e-5
    _, grads = exact.loss_and_gradients(texts)
    for name, weight in weights.items():
        at = tuple(rng.integers(0, weight.shape))
        before, losses = weight[at], []
        for weight[at] in (before + shift, before - shift):
            losses.append(exact.loss_and_gradients(texts)[0])
        weight[at] = before
        assert (losses[0] - losses[1]) / (2 * shift) == pytest.approx(grads[name][at], rel=1e-3, abs=1e-6), name


@pytest.mark.slow
def test_training_learns_and_is_kept(tmp_path: Path) -> None:
    """A few steps tell which tokens are frequent: the scores are better than equal ones for all tokens."""
    command = [sys.executable, EXAMPLE / "train_decoder.py", "--steps", "10", "--output", tmp_path / "weights.npz"]
    ended = warm.run(command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    tokenizer, learned = load(tmp_path / "weights.npz")
    assert learned.sizes == Sizes()
    assert len(tokenizer) == learned.sizes.tokens
    loss, _ = learned.loss_and_gradients(np.array([tokenizer.encode(pages()[0])[:100]]))
    assert loss < np.log(learned.sizes.tokens) - 0.3
    assert "The daemon" in ended.stdout


def test_tokens_are_pieces_of_text() -> None:
    """The text has the pair 'th' most often, then 'the'."""
    tokenizer = Tokenizer.learned(["the thin the other", "the"], 258)
    assert (len(tokenizer), tokenizer.pairs) == (258, [(116, 104), (256, 101)])
    assert tokenizer.encode("then th") == [257, 110, 32, 256]
    for text in ("the other", "no\u00ebl \u2014 \u4e16\u754c_x  12\n\n\0 the", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([195]) == "\ufffd"
