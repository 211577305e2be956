"""Networks that detect objects and text in images."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from families.layers import conv
from families.network import DYNAMIC, FP16, IMAGES, QDQ, QOPERATOR, TORCHSCRIPT, Network, real

FAMILY = "detection"


def backbone(channels: tuple[int, ...] = (16, 32, 64, 96, 128), act: type[nn.Module] = nn.SiLU) -> nn.ModuleList:
    """Build a backbone whose feature maps halve in size from stage to stage."""
    pairs = zip((3, *channels), channels, strict=False)
    return nn.ModuleList([nn.Sequential(conv(n, m, 3, 2, act=act), conv(m, m, 3, act=act)) for n, m in pairs])


class Ssd(nn.Module):
    """SSD: boxes around fixed-size anchors (Liu et al. 2015)."""

    def __init__(self, classes: int = 10, anchors: int = 3) -> None:
        super().__init__()
        self.classes = classes
        self.stages = backbone(act=nn.ReLU6)
        self.boxes = nn.ModuleList([nn.Conv2d(n, 4 * anchors, 3, 1, 1) for n in (64, 96, 128)])
        self.scores = nn.ModuleList([nn.Conv2d(n, classes * anchors, 3, 1, 1) for n in (64, 96, 128)])
        self.register_buffer("anchors", torch.rand(anchors * (16 * 16 + 8 * 8 + 4 * 4), 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        boxes, scores = [], []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index >= 2:
                boxes.append(self.boxes[index - 2](x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
                scores.append(self.scores[index - 2](x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes))
        raw = torch.cat(boxes, 1)
        centres = raw[..., :2] * 0.1 * self.anchors[:, 2:] + self.anchors[:, :2]
        sizes = torch.exp(raw[..., 2:] * 0.2) * self.anchors[:, 2:]
        return torch.cat((centres - sizes / 2, centres + sizes / 2), -1), torch.cat(scores, 1).softmax(-1)


class Yolo(nn.Module):
    """YOLO: one box per cell of three feature maps.

    The anchors follow from the maps' shapes, so that images may have any size.
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stages = backbone()
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.spread = conv(4 * 128, 128, 1, act=nn.SiLU)
        self.laterals = nn.ModuleList([nn.Conv2d(n, 64, 1) for n in (64, 96, 128)])
        self.heads = nn.ModuleList([nn.Conv2d(64, 4 + classes, 1) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        pools = [x]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        maps[-1] = self.spread(torch.cat(pools, 1))
        fine, middle, coarse = (lateral(x) for lateral, x in zip(self.laterals, maps[2:], strict=True))
        middle = middle + functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        fine = fine + functional.interpolate(middle, scale_factor=2.0, mode="nearest")
        maps = [head(x) for head, x in zip(self.heads, (fine, middle, coarse), strict=True)]
        return torch.cat([self._decoded(x, stride) for x, stride in zip(maps, (8, 16, 32), strict=True)], 1)

    def _decoded(self, x: Tensor, stride: int) -> Tensor:
        n, channels, height, width = x.shape
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        cells = torch.stack((columns, rows), -1).reshape(1, -1, 2) + 0.5
        x = x.permute(0, 2, 3, 1).reshape(n, height * width, channels)
        near, far = x[..., :2].exp(), x[..., 2:4].exp()
        return torch.cat(((cells - near) * stride, (cells + far) * stride, x[..., 4:].sigmoid()), -1)


class Suppress(torch.autograd.Function):
    """ONNX's NonMaxSuppression, which torch lacks."""

    @staticmethod
    def forward(context: Any, boxes: Tensor, scores: Tensor) -> Tensor:
        return torch.zeros(5, 3, dtype=torch.int64)

    @staticmethod
    def symbolic(g: Any, boxes: Any, scores: Any) -> Any:
        most, overlap, least = (g.op("Constant", value_t=torch.tensor(value)) for value in ([20], [0.5], [0.3]))
        return g.op("NonMaxSuppression", boxes, scores, most, overlap, least)


class Suppressed(nn.Module):
    """Detector with non-maximum suppression in the graph: the number of boxes depends on the image."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.detector(x)
        boxes, scores = (found[..., :4], found[..., 4:]) if isinstance(found, Tensor) else found
        chosen = Suppress.apply(boxes, scores.transpose(1, 2))
        image, kind, place = chosen[:, 0], chosen[:, 1], chosen[:, 2]
        return boxes[image, place], scores[image, place, kind], kind


class TextDetector(nn.Module):
    """DBNet text detector: merges all feature maps, then upsamples twice (Liao et al. 2019)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stages = backbone((16, 24, 48, 96), nn.Hardswish)
        self.laterals = nn.ModuleList([nn.Conv2d(n, width, 1, bias=False) for n in (16, 24, 48, 96)])
        self.smooth = nn.ModuleList([nn.Conv2d(width, width // 4, 3, 1, 1, bias=False) for _ in range(4)])
        self.head = nn.Sequential(
            conv(width, 16), nn.ConvTranspose2d(16, 16, 2, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            x = stage(x)
            maps.append(lateral(x))
        for index in (2, 1, 0):
            maps[index] = maps[index] + functional.interpolate(maps[index + 1], scale_factor=2.0, mode="nearest")
        maps = [smooth(x) for smooth, x in zip(self.smooth, maps, strict=True)]
        same = [maps[0]]
        for index in (1, 2, 3):
            same.append(functional.interpolate(maps[index], scale_factor=float(2**index), mode="nearest"))
        return self.head(torch.cat(same, 1)).sigmoid()


class Crnn(nn.Module):
    """CRNN text reader for lines of any width: convolutions, then a bidirectional LSTM (Shi et al. 2015)."""

    def __init__(self, letters: int = 80) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            conv(1, 32),
            nn.MaxPool2d(2),
            conv(32, 64),
            nn.MaxPool2d(2),
            conv(64, 96),
            nn.MaxPool2d((2, 1)),
            conv(96, 96),
            nn.MaxPool2d((4, 1)),
        )
        self.lstm = nn.LSTM(96, 64, num_layers=2, bidirectional=True)
        self.head = nn.Linear(128, letters)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convs(x).squeeze(2).permute(2, 0, 1)
        y, _ = self.lstm(x)
        return self.head(y).log_softmax(-1)


ANY_IMAGE = {"x": real(1, 3, "height", "width")}
LINES = {"x": real("batch", 1, 32, "width")}
WIDTHS = ({"batch": 2, "width": 120}, {"batch": 1, "width": 200})
BOXES = ("boxes", "scores")

NETWORKS = [
    Network(FAMILY, "SSD", Ssd, {"x": real(1, 3, 128, 128)}, outputs=BOXES, formats=(QDQ,)),
    Network(FAMILY, "YOLO", Yolo, ANY_IMAGE, IMAGES, formats=(FP16, QDQ)),
    Network(
        FAMILY,
        "YOLO with NonMaxSuppression",
        lambda: Suppressed(Yolo()),
        ANY_IMAGE,
        IMAGES,
        exporters=(TORCHSCRIPT,),
        outputs=(*BOXES, "classes"),
    ),
    Network("OCR", "text detector", TextDetector, ANY_IMAGE, IMAGES, formats=(QDQ, QOPERATOR)),
    Network("OCR", "CRNN recognizer", Crnn, LINES, WIDTHS, exporters=(TORCHSCRIPT,), formats=(DYNAMIC,)),
]
