"""Network that `train.py` trained, built with the client's interface."""

from pathlib import Path

import numpy as np

from nnrt_client import FuseType, Model, OperationType, PadMode

WEIGHTS_FILE = Path(__file__).resolve().parent / "weights.npz"


def digits_model() -> Model:
    """Return the model: images float32 [n, 8, 8, 1] in, probabilities float32 [n, 10] out, for any n."""
    with np.load(WEIGHTS_FILE, allow_pickle=False) as weights:
        model = Model(name="digits")
        image = model.input((-1, 8, 8, 1), name="image")
        y = image
        for layer in ("conv1", "conv2"):
            y = model.apply(
                OperationType.CONV2D,
                y,
                weights[f"{layer}_weight"],
                weights[f"{layer}_bias"],
                pad_mode=PadMode.SAME,
                activation=FuseType.RELU,
                name=layer,
            )
            y = model.apply(OperationType.MAX_POOL, y, kernel_size=(2, 2), strides=(2, 2))
        y = model.apply(OperationType.RESHAPE, y, [-1, 128])
        y = model.apply(OperationType.FULL_CONNECTION, y, weights["dense_weight"], weights["dense_bias"], name="dense")
        y = model.apply(OperationType.SOFTMAX, y, name="probabilities")
    model.specify_inputs_and_outputs([image], [y])
    model.finish()
    return model
