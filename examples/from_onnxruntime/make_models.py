"""Write the models of the programs in this folder, and a page and a sound for them, into the folder `models`.

python make_models.py
"""

import wave
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

AnyArray = NDArray[Any]

RNG = np.random.default_rng(7)

# Ten digits of seven rows each. The bits of a row are its pixels.
DIGITS = """
0e 11 13 15 19 11 0e  04 0c 04 04 04 04 0e  0e 11 01 02 04 08 1f  1f 02 04 02 01 11 0e  02 06 0a 12 1f 02 02
1f 10 1e 01 01 11 0e  06 08 10 1e 11 11 0e  1f 01 02 04 08 08 08  0e 11 11 0e 11 11 0e  0e 11 11 0f 01 02 0c
"""
ROWS, COLUMNS = 7, 5
LINES = ("31415926535", "27182818", "1618033988749")

SAMPLES_PER_S, FRAME = 16000, 512

WORDS, WIDTH, HEADS, LAYERS, LONGEST = 1000, 64, 4, 2, 256
LETTERS = " abcdefghijklmnopqrstuvwxyz.,'"


def model(text: str, **weights: AnyArray) -> onnx.ModelProto:
    """Return the model that an ONNX text describes. The text refers to `weights` by name."""
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 17], producer_name: "make_models">\n{text}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.checker.check_model(made)
    return made


def floats(*numbers: float) -> AnyArray:
    return np.array(numbers, np.float32)


def integers(*numbers: int) -> AnyArray:
    return np.array(numbers, np.int64)


def random(*shape: int) -> AnyArray:
    made: AnyArray = RNG.standard_normal(shape) / np.sqrt(shape[0])
    return made.astype(np.float32)


# ---- text


def glyphs() -> AnyArray:
    rows = np.array([int(row, 16) for row in DIGITS.split()]).reshape(10, ROWS, 1)
    return (rows >> np.arange(COLUMNS)[::-1] & 1).astype(np.float32)


def page() -> AnyArray:
    """Return the image of a page with lines of digits, and some noise."""
    image = np.zeros((16 * len(LINES), 100), np.float32)
    for line, text in enumerate(LINES):
        for at, digit in enumerate(text):
            top, left = 16 * line + 4, 4 + 3 * line + 6 * at
            image[top : top + ROWS, left : left + COLUMNS] = glyphs()[int(digit)]
    return image + 0.02 * RNG.standard_normal(image.shape).astype(np.float32)


def detector() -> onnx.ModelProto:
    """Return a model that detects ink in the neighbourhood of each pixel."""
    text = """
    detector (float[1, 1, height, width] image) => (float[1, 1, height, width] ink) {
        near = Conv<pads = [1, 3, 1, 3]>(image, window)
        more = Sub(near, least)
        steep = Mul(more, slope)
        ink = Sigmoid(steep)
    }"""
    return model(text, window=np.ones((1, 1, 3, 7), np.float32), least=floats(1.5), slope=floats(8))


def reader() -> onnx.ModelProto:
    """Return a model that scores each digit at each column of a line.

    The filter of a digit gives 1 where the digit is, and 0 or less where a pixel differs. The first score stands for no
    digit.
    """
    text = """
    reader (float[1, 1, height, width] line) => (float[1, 11, columns] scores) {
        matches = Conv(line, filters, bias)
        scores = ReduceMax<axes = [2], keepdims = 0>(matches)
    }"""
    filters = np.concatenate((np.zeros((1, ROWS, COLUMNS)), 2 * glyphs() - 1)).astype(np.float32)
    bias = np.concatenate(([0.5], 1 - glyphs().sum((1, 2)))).astype(np.float32)
    made = model(text, filters=filters[:, None], bias=bias)
    made.metadata_props.add(key="characters", value="0123456789")
    return made


# ---- sound


def sound() -> AnyArray:
    """Return two seconds of sound: a voice from 0.5 s to 0.9 s and from 1.3 s to 1.7 s, and noise."""
    seconds = np.arange(2 * SAMPLES_PER_S) / SAMPLES_PER_S
    voice = sum(np.sin(2 * np.pi * 140 * overtone * seconds) / overtone for overtone in range(1, 12))
    speaks = ((seconds >= 0.5) & (seconds < 0.9)) | ((seconds >= 1.3) & (seconds < 1.7))
    heard = 0.2 * voice * speaks + 0.003 * RNG.standard_normal(len(seconds))
    samples: AnyArray = (heard * 2**15).clip(-(2**15), 2**15 - 1)
    return samples.astype("<i2")


def activity() -> onnx.ModelProto:
    """Return a model that detects voices by the power between 100 Hz and 3 kHz.

    The frequencies are spaced like those of human hearing. A state smooths the power over the frames.
    """
    text = """
    activity (float[1, 512] sound, float[1, 1] state, int64 sr) => (float[1, 1] probability, float[1, 1] next_state) {
        rows = Unsqueeze(sound, axis)
        waves = Conv<strides = [128]>(rows, filters)
        powers = Mul(waves, waves)
        power = ReduceMean<axes = [1, 2], keepdims = 0>(powers)
        above = Mul(power, audible)
        raised = Add(above, one)
        level = Log(raised)
        samples_per_s = Cast<to = 1>(sr)
        frame_s = Div(frame, samples_per_s)
        forgotten = Div(frame_s, memory_s)
        negative = Neg(forgotten)
        kept = Exp(negative)
        change = Sub(state, level)
        kept_change = Mul(change, kept)
        next_state = Add(level, kept_change)
        over = Sub(next_state, threshold)
        probability = Sigmoid(over)
    }"""
    times = np.arange(256) / SAMPLES_PER_S
    angles = 2 * np.pi * np.geomspace(100, 3000, 16)[:, None] * times
    filters = np.concatenate((np.sin(angles), np.cos(angles))) * np.hanning(256) / 64
    return model(
        text,
        axis=integers(1),
        filters=filters[:, None].astype(np.float32),
        audible=floats(1e5),
        one=floats(1),
        frame=np.float32(FRAME),
        memory_s=np.float32(0.03),
        threshold=floats(4),
    )


# ---- transformers


def attention(layer: int, past: str = "") -> str:
    """Return the nodes of one transformer layer as ONNX text; they compute `x{layer + 1}` from `x{layer}`.

    With `past`, the layer reads earlier keys and values, and returns them with the new ones.
    """
    keys, values = (f"k{layer}", f"v{layer}") if past else (f"nk{layer}", f"nv{layer}")
    cached = f"""
        {keys} = Concat<axis = 2>(past_keys_{layer}, nk{layer})
        {values} = Concat<axis = 2>(past_values_{layer}, nv{layer})
        present_keys_{layer} = Identity({keys})
        present_values_{layer} = Identity({values})"""
    heads = "\n".join(
        f"""
        {name}m{layer} = MatMul(n{layer}, {name}w{layer})
        {name}s{layer} = Reshape({name}m{layer}, by_head)
        {target} = Transpose<perm = [0, 2, 1, 3]>({name}s{layer})"""
        for name, target in (("q", f"q{layer}"), ("k", f"nk{layer}"), ("v", f"nv{layer}"))
    )
    return f"""
        n{layer} = LayerNormalization(x{layer}, gain, shift)
        {heads}
        {cached if past else ""}
        t{layer} = Transpose<perm = [0, 1, 3, 2]>({keys})
        a{layer} = MatMul(q{layer}, t{layer})
        sa{layer} = Mul(a{layer}, scale)
        ma{layer} = {f"Identity(sa{layer})" if past else f"Add(sa{layer}, hidden)"}
        p{layer} = Softmax<axis = -1>(ma{layer})
        h{layer} = MatMul(p{layer}, {values})
        r{layer} = Transpose<perm = [0, 2, 1, 3]>(h{layer})
        c{layer} = Reshape(r{layer}, together)
        o{layer} = MatMul(c{layer}, ow{layer})
        y{layer} = Add(x{layer}, o{layer})
        f{layer} = LayerNormalization(y{layer}, gain, shift)
        u{layer} = MatMul(f{layer}, uw{layer})
        g{layer} = Relu(u{layer})
        d{layer} = MatMul(g{layer}, dw{layer})
        x{layer + 1} = Add(y{layer}, d{layer})"""


def weights() -> dict[str, AnyArray]:
    """Return random weights, and the constants of `attention`."""
    made = {
        f"{name}w{layer}": random(*shape)
        for layer in range(LAYERS)
        for name, shape in {
            **dict.fromkeys("qkvo", (WIDTH, WIDTH)),
            "u": (WIDTH, 4 * WIDTH),
            "d": (4 * WIDTH, WIDTH),
        }.items()
    }
    return made | {
        "gain": np.ones(WIDTH, np.float32),
        "shift": np.zeros(WIDTH, np.float32),
        "scale": floats((WIDTH / HEADS) ** -0.5),
        "by_head": integers(0, 0, HEADS, WIDTH // HEADS),
        "together": integers(0, 0, WIDTH),
        "positions": random(LONGEST, WIDTH),
    }


def encoder() -> onnx.ModelProto:
    """Return a model that computes vectors of sentences, as the mean of their words' vectors.

    Number and length of the sentences are dynamic.
    """
    text = f"""
    encoder (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (float[batch, {WIDTH}] vectors) {{
        words = Gather(table, input_ids)
        longest = Shape<start = 1>(input_ids)
        length = Squeeze(longest)
        counted = Range(first, length, step)
        place = Gather(positions, counted)
        x0 = Add(words, place)
        mask = Cast<to = 1>(attention_mask)
        missing = Sub(mask, one)
        far = Mul(missing, much)
        hidden = Unsqueeze(far, inner)
        {attention(0)}
        {attention(1)}
        column = Unsqueeze(mask, last)
        said = Mul(x{LAYERS}, column)
        sums = ReduceSum<keepdims = 0>(said, axes)
        counts = ReduceSum<keepdims = 0>(column, axes)
        vectors = Div(sums, counts)
    }}"""
    return model(
        text,
        **weights(),
        table=4 * random(WORDS, WIDTH) * np.sqrt(np.float32(WORDS / WIDTH)),
        first=np.int64(0),
        step=np.int64(1),
        one=floats(1),
        much=floats(1e4),
        inner=integers(1, 2),
        last=integers(2),
        axes=integers(1),
    )


def decoder() -> onnx.ModelProto:
    """Return a model that scores the next letter, given a letter and the keys and values of earlier letters."""
    size = f"1, {HEADS}"
    names = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("keys", "values")]
    past = ", ".join(f"float[{size}, past, {WIDTH // HEADS}] past_{name}" for name in names)
    present = ", ".join(f"float[{size}, present, {WIDTH // HEADS}] present_{name}" for name in names)
    text = f"""
    decoder (int64[1, 1] letter, int64[1, 1] position, {past}) => (float[1, 1, {len(LETTERS)}] scores, {present}) {{
        letters = Gather(table, letter)
        place = Gather(positions, position)
        x0 = Add(letters, place)
        {attention(0, "past")}
        {attention(1, "past")}
        last = LayerNormalization(x{LAYERS}, gain, shift)
        scores = MatMul(last, head)
    }}"""
    made = model(text, **weights(), table=random(len(LETTERS), WIDTH), head=random(WIDTH, len(LETTERS)))
    made.metadata_props.add(key="letters", value=LETTERS)
    return made


@click.command(help=__doc__)
@click.option("--models", default="models", show_default=True, type=click.Path(path_type=Path))
def main(models: Path) -> None:
    models.mkdir(exist_ok=True)
    for make in (detector, reader, activity, encoder, decoder):
        onnx.save(make(), models / f"{make.__name__}.onnx")
    np.save(models / "page.npy", page())
    with wave.open(str(models / "sound.wav"), "wb") as file:
        file.setparams((1, 2, SAMPLES_PER_S, 0, "NONE", ""))
        file.writeframes(sound().tobytes())


main()
