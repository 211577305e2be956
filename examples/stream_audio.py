"""Find speech in a stream of sound, chunk by chunk: the state of the detector stays on the device.

    nnrt-device serve --listen 127.0.0.1:50051 &
    python examples/stream_audio.py 127.0.0.1:50051 recording.wav

The file is mono or stereo, of 16 bits. Without one the program makes a sound: noise, in which a voice-like tone comes
and goes. The detector follows the loudness and the noise floor, as simple ones in telephones do; a network such as
silero's is used in the same way.
"""

import sys
import wave
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnrt_client import Model, OperationType, load

RATE, CHUNK = 16_000, 512
# Part of the loudness of the chunk before that stays, and by how much the noise floor may rise by chunk.
SMOOTHING, RISE = 0.7, 1.01
# How many times louder than the floor speech is, and how sure the detector becomes by it.
LEAST_RATIO, SURENESS = 4.0, 3.0


def detector() -> Model:
    """Build a model of one chunk: probability, loudness_out, floor_out = f(chunk, loudness, floor)."""
    model = Model("speech detector")
    chunk = model.input((1, CHUNK), name="chunk")
    loudness, floor = (model.input((1, 1), name=name) for name in ("loudness", "floor"))
    op = model.apply
    power = op(OperationType.REDUCE_MEAN, op(OperationType.MUL, chunk, chunk), np.array([1]), keep_dims=True)
    old = op(OperationType.MUL, loudness, np.array(SMOOTHING, np.float32))
    new = op(OperationType.MUL, power, np.array(1 - SMOOTHING, np.float32))
    louder = op(OperationType.ADD, old, new, name="loudness_out")
    risen = op(OperationType.MUL, floor, np.array(RISE, np.float32))
    lowest = op(OperationType.MINIMUM, risen, louder)
    kept = op(OperationType.MAXIMUM, lowest, np.array(1e-9, np.float32), name="floor_out")
    ratio = op(OperationType.LOG, op(OperationType.DIV, louder, kept))
    above = op(OperationType.SUB, ratio, np.array(np.log(LEAST_RATIO), np.float32))
    sure = op(OperationType.MUL, above, np.array(SURENESS, np.float32))
    probability = op(OperationType.SIGMOID, sure, name="probability")
    model.specify_inputs_and_outputs([chunk, loudness, floor], [probability, louder, kept])
    model.finish()
    return model


def chunks(sound: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yield a sound as it would come from a microphone."""
    for begin in range(0, len(sound) - CHUNK + 1, CHUNK):
        yield sound[None, begin : begin + CHUNK]


def sound_of(path: str) -> NDArray[np.float32]:
    """Return the samples of a WAV file, from -1 to 1, of its first channel."""
    with wave.open(path) as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"{path} has samples of {8 * file.getsampwidth()} bits; give a file of 16 bits")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    sound: NDArray[np.float32] = samples[:, 0].astype(np.float32) / np.float32(32768)
    return sound


def made_sound() -> NDArray[np.float32]:
    """Return six seconds of noise, with a tone that trembles in seconds 2 and 5."""
    at = np.arange(6 * RATE) / RATE
    tone = np.sin(2 * np.pi * 180 * at) * (1 + 0.5 * np.sin(2 * np.pi * 5 * at)) * np.isin(at.astype(int), (1, 4))
    noise = np.random.default_rng(0).normal(size=len(at))
    sound: NDArray[np.float32] = (0.1 * tone + 0.01 * noise).astype(np.float32)
    return sound


def main() -> None:
    sound = sound_of(sys.argv[2]) if len(sys.argv) > 2 else made_sound()
    states = {"loudness_out": "loudness", "floor_out": "floor"}
    with load(detector(), sys.argv[1]) as session, session.sequence({"floor": [[1e-3]]}, states=states) as sequence:
        was_speech = False
        for number, chunk in enumerate(chunks(sound)):
            is_speech = sequence.run({"chunk": chunk})["probability"][0, 0] > 0.5
            if is_speech != was_speech:
                print(f"{number * CHUNK / RATE:6.2f} s: {'speech' if is_speech else 'silence'}")
            was_speech = is_speech


if __name__ == "__main__":
    main()
