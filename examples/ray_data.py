"""Run an ImageNet network over a folder of images, on all devices of a Ray cluster.

ray start --head --resources '{"nnrt_device": 2}'
python examples/ray_data.py resnet50.onnx data s3://bucket/images scores
"""

import sys
from typing import Any

import ray

from nnrt_client.ray import Predictor

model, input_name, images, scores = sys.argv[1:]


def planes(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the images in NCHW, normalized as ImageNet networks expect them."""
    pixels = (batch["image"].astype("f4") / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    return {"path": batch["path"], "pixels": pixels.transpose(0, 3, 1, 2).astype("f4")}


ray.init()
found = ray.data.read_images(images, size=(224, 224), mode="RGB", include_paths=True).map_batches(planes)
found.map_batches(
    Predictor,
    fn_constructor_args=[model],
    fn_constructor_kwargs={"columns": {input_name: "pixels"}, "keep": ["path"]},
    batch_size=32,
    concurrency=int(ray.cluster_resources()["nnrt_device"]),
    num_cpus=0,
    resources={"nnrt_device": 1},
).write_parquet(scores)
