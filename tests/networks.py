"""Small models that several tests run."""

import numpy as np
from numpy.typing import NDArray

from nnrt_client import DataType, FuseType, Model, OperationType, PadMode


def identity_model(data_type: DataType = DataType.FLOAT32, elements: int = -1) -> Model:
    """Build y = x + 0."""
    model = Model()
    x = model.input((elements,), data_type, name="x")
    zero = np.zeros(1, data_type.name.lower())
    y = model.apply(OperationType.ADD, x, zero)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def weighted_model(elements: int, seed: int = 0) -> Model:
    """Build y = x + w for one number x and `elements` random weights."""
    model = Model()
    x = model.input((1,), name="x")
    y = model.apply(OperationType.ADD, x, np.random.default_rng(seed).standard_normal(elements, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def convolution_model(channels: int = 8, seed: int = 0) -> Model:
    """Build a convolution, a pooling and a dense layer for 8x8 images, with random weights."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32)

    model = Model()
    x = model.input((-1, 8, 8, 1), name="image")
    y = model.apply(
        OperationType.CONV2D,
        x,
        weights(channels, 3, 3, 1),
        weights(channels),
        pad_mode=PadMode.SAME,
        activation=FuseType.RELU,
    )
    y = model.apply(OperationType.MAX_POOL, y, kernel_size=(2, 2), strides=(2, 2))
    y = model.apply(OperationType.RESHAPE, y, [-1, 16 * channels])
    y = model.apply(OperationType.FULL_CONNECTION, y, weights(10, 16 * channels), weights(10))
    y = model.apply(OperationType.SOFTMAX, y)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model
