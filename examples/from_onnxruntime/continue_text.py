"""Continue a text letter by letter, by a network with random weights whose keys and values stay on the device.

python continue_text.py --device 127.0.0.1:50051 "a text"
"""

from pathlib import Path

import click
import numpy as np

from nnrt_client import onnxruntime


@click.command(help=__doc__)
@click.argument("text")
@click.option("--letters", "count", default=40, show_default=True, help="How many to add.")
@click.option("--device", help="HOST:PORT of a daemon; the first of NNRT_DEVICES without.")
@click.option("--models", default="models", show_default=True, type=click.Path(path_type=Path))
def main(text: str, count: int, device: str, models: Path) -> None:
    providers = [("NnrtExecutionProvider", {"device": device})]
    session = onnxruntime.InferenceSession(models / "decoder.onnx", providers=providers)
    letters = session.get_modelmeta().custom_metadata_map["letters"]
    if not text or not set(text) <= set(letters):
        raise click.BadParameter(f"{text!r} is no text of the letters {letters!r}", param_hint="TEXT")
    # Keys and values are empty at first: their named dimension is 0.
    memory = {
        given.name.removeprefix("past_"): onnxruntime.OrtValue.ortvalue_from_numpy(
            np.zeros([dim if isinstance(dim, int) else 0 for dim in given.shape], np.float32)
        )
        for given in session.get_inputs()
        if given.name.startswith("past_")
    }
    end = len(text) + count
    for position in range(end - 1):
        binding = session.io_binding()
        binding.bind_cpu_input("letter", np.array([[letters.index(text[position])]]))
        binding.bind_cpu_input("position", np.array([[position]]))
        binding.bind_output("scores")
        for name, value in memory.items():
            binding.bind_ortvalue_input(f"past_{name}", value)
            binding.bind_output(f"present_{name}", "nnrt")
        session.run_with_iobinding(binding)
        scores, *remembered = binding.get_outputs()
        memory = dict(zip(memory, remembered, strict=True))
        if position + 1 == len(text):
            text += letters[scores.numpy().argmax()]
    print(text)


main()
