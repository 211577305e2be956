"""Notes of the ONNX Runtime backend about nodes that it runs otherwise than asked."""

import numpy as np
from daemon_process import DaemonProcess

from nnrt_client import DataType, Model, OperationType, Runtime

NOTE = "FLOAT16 is computed in FLOAT32, and rounded where it leaves the model"


def test_float16_on_a_processor(onnxruntime_daemon: DaemonProcess) -> None:
    """A node that only moves elements gets no note, because it computes nothing."""
    model = Model()
    half, single = model.input((2, 3), DataType.FLOAT16), model.input((2, 3))
    outputs = [
        model.apply(OperationType.RELU, half),
        model.apply(OperationType.TRANSPOSE, half, np.array([1, 0], np.int32)),
        model.apply(OperationType.RELU, single),
    ]
    model.specify_inputs_and_outputs([half, single], outputs)
    model.finish()
    with Runtime([onnxruntime_daemon.address]) as runtime:
        answers = model.supported_operations(runtime.device())
    assert [(answer.reason, answer.note) for answer in answers] == [("", NOTE), ("", ""), ("", "")]
