"""A detector: feature maps of several scales, boxes decoded from anchors, and the best of them chosen."""

import numpy as np
import onnx
import pytest
from onnx_models import AnyArray, Graph, run_onnxruntime

from nnrt_client import Compilation, Executor, Runtime, Unsupported, from_onnx

CLASSES = 4
BEST = 8
STRIDES = (8, 16, 32)
# Width and height of the boxes that each cell of a feature map starts from, in pixels.
ANCHORS = np.array([[(8, 8), (12, 20)], [(24, 24), (20, 36)], [(48, 48), (60, 40)]], "f4")


class Detector(Graph):
    """A network as YOLO's: a backbone, feature maps merged from the coarsest to the finest, a head for each."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(11)

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> str:
        weight = self._rng.normal(size=(outputs, inputs, kernel, kernel)) * np.sqrt(2 / (inputs * kernel**2))
        params = self.constant(weight.astype("f4")), self.constant(self._rng.normal(size=outputs).astype("f4") / 8)
        return str(self.op("Conv", x, *params, pads=[kernel // 2] * 4, strides=[stride] * 2))

    def block(self, x: str, inputs: int, outputs: int, stride: int) -> str:
        y = self.conv(x, inputs, outputs, 3, stride)
        return str(self.op("Mul", y, self.op("Sigmoid", y)))

    def part(self, x: str, start: int, end: int) -> str:
        """A part of the last dimension."""
        return str(self.op("Slice", x, *(self.constant([number]) for number in (start, end, -1))))

    def merged(self, image: str) -> list[str]:
        """Feature maps of 16 channels, the finest first."""
        x = self.block(self.block(image, 3, 8, 2), 8, 12, 2)
        maps = []
        for inputs, outputs in ((12, 16), (16, 24), (24, 32)):
            x = self.block(x, inputs, outputs, 2)
            maps.append(self.conv(x, outputs, 16, 1))
        for finer in (1, 0):
            front, size = self.op("Shape", maps[finer + 1], end=2), self.op("Shape", maps[finer], start=2)
            sizes = self.op("Concat", front, size, axis=0)
            above = self.op("Resize", maps[finer + 1], "", "", sizes)
            maps[finer] = self.conv(self.op("Concat", maps[finer], above, axis=1), 32, 16, 3)
        return maps

    def decoded(self, x: str, anchors: AnyArray, stride: int, cells: int) -> tuple[str, str]:
        """The corners of the boxes [n, boxes, 4] of one feature map, and their scores [n, boxes, CLASSES]."""
        count = len(anchors)
        raw = self.conv(x, 16, count * (5 + CLASSES), 1)
        split = self.op("Reshape", raw, self.constant([0, count, 5 + CLASSES, cells, cells]))
        raw = self.op("Transpose", split, perm=[0, 1, 3, 4, 2])
        grid = np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1).astype("f4") - 0.5
        offset = self.op("Mul", self.op("Sigmoid", self.part(raw, 0, 2)), self.constant(np.float32(2)))
        centre = self.op("Mul", self.op("Add", offset, self.constant(grid)), self.constant(np.float32(stride)))
        half = self.op("Mul", self.op("Exp", self.part(raw, 2, 4)), self.constant(anchors.reshape(count, 1, 1, 2) / 2))
        boxes = self.op("Concat", self.op("Sub", centre, half), self.op("Add", centre, half), axis=-1)
        is_there = self.op("Sigmoid", self.part(raw, 4, 5))
        scores = self.op("Mul", is_there, self.op("Softmax", self.part(raw, 5, 5 + CLASSES), axis=-1))
        return (
            self.op("Reshape", boxes, self.constant([0, -1, 4])),
            self.op("Reshape", scores, self.constant([0, -1, CLASSES])),
        )

    def all_boxes(self, image: str, size: int) -> tuple[str, str]:
        found = [
            self.decoded(x, anchors, stride, size // stride)
            for x, anchors, stride in zip(self.merged(image), ANCHORS, STRIDES, strict=True)
        ]
        boxes, scores = zip(*found, strict=True)
        return self.op("Concat", *boxes, axis=1), self.op("Concat", *scores, axis=1)

    def best(self, boxes: str, scores: str) -> tuple[str, str, str]:
        """The boxes with the highest scores, these scores, and their classes."""
        classes = self.op("ArgMax", scores, axis=2, keepdims=0)
        highest = self.op("ReduceMax", scores, self.constant([2]), keepdims=0)
        values, order = self.op("TopK", highest, self.constant([BEST]), axis=1, outputs=2)
        rows = self.op("Expand", self.op("Unsqueeze", order, self.constant([2])), self.constant([1, BEST, 4]))
        return self.op("GatherElements", boxes, rows, axis=1), values, self.op("GatherElements", classes, order, axis=1)


def detector(size: int = 64) -> onnx.ModelProto:
    g = Detector()
    return g.model(*g.best(*g.all_boxes(g.input("image", ["batch", 3, size, size]), size)))


def test_detector_finds_what_onnx_runtime_finds(each_runtime: Runtime) -> None:
    proto = detector()
    model = from_onnx(proto.SerializeToString())
    assert [tensor.desc.shape for tensor in model.outputs] == [(-1, BEST, 4), (-1, BEST), (-1, BEST)]
    with Compilation(model, each_runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for batch in (1, 3):
                image = np.random.default_rng(batch).normal(size=(batch, 3, 64, 64)).astype("f4")
                boxes, scores, classes = executor.run_sync([image])
                wanted, best, labels = run_onnxruntime(proto, {"image": image})
                # Far enough apart that rounding does not change their order.
                assert np.diff(best).max() < -1e-5
                assert len(np.unique(labels)) > 1
                np.testing.assert_allclose(scores, best, rtol=1e-4)
                np.testing.assert_array_equal(classes, labels)
                np.testing.assert_allclose(boxes, wanted, rtol=1e-4, atol=1e-3)


def test_how_many_boxes_suppression_leaves_is_known_only_in_a_run() -> None:
    """The one part of a detector that NNRt has no operation for: a model ends in front of it."""
    g = Detector()
    boxes, scores = g.all_boxes(g.input("image", ["batch", 3, 64, 64]), 64)
    of_classes = g.op("Transpose", scores, perm=[0, 2, 1])
    limits = (g.constant(value) for value in (np.array([10]), np.array([0.5], "f4"), np.array([0.1], "f4")))
    kept = g.op("NonMaxSuppression", boxes, of_classes, *limits, name="suppression")
    with pytest.raises(Unsupported) as caught:
        from_onnx(g.model(kept).SerializeToString())
    _, said = str(caught.value).split("\n")
    reason = "how many elements it gives depends on the elements themselves, which no operation of NNRt allows"
    assert said == f"  NonMaxSuppression node 'suppression': {reason}"
    assert from_onnx(g.model(boxes, of_classes).SerializeToString()).is_finished
