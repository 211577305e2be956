"""Print the times at which somebody speaks, by a network whose state goes from run to run.

python find_speech.py --device 127.0.0.1:50051
"""

import wave
from pathlib import Path

import click
import numpy as np

from nnrt_client import onnxruntime

FRAME = 512


@click.command(help=__doc__)
@click.option("--device", help="HOST:PORT of a daemon; the first of NNRT_DEVICES without.")
@click.option("--models", default="models", show_default=True, type=click.Path(path_type=Path))
def main(device: str, models: Path) -> None:
    providers = [("NnrtExecutionProvider", {"device": device})]
    session = onnxruntime.InferenceSession(models / "activity.onnx", providers=providers)
    with wave.open(str(models / "sound.wav")) as file:
        rate = file.getframerate()
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 2**15
    state, began = np.zeros((1, 1), np.float32), None
    for at in range(0, len(sound) - FRAME + 1, FRAME):
        feed = {"sound": sound[None, at : at + FRAME], "state": state, "sr": np.array(rate)}
        probability, state = session.run(["probability", "next_state"], feed)
        speaks = probability.item() > 0.5
        if speaks and began is None:
            began = at / rate
        elif not speaks and began is not None:
            print(f"{began:.2f} s to {at / rate:.2f} s")
            began = None


main()
