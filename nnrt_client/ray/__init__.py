"""Devices of a Ray cluster: daemons that Ray places and restarts, and models for Ray Data. This needs nnrt[ray].

with start("cameras", serve=["--backend", "onnxruntime"]):         # a daemon for each nnrt_device of the cluster
    session = nnrt_client.load("model.onnx", device="ray:///cameras")

dataset.map_batches(Predictor, fn_constructor_args=["model.onnx"], resources={"nnrt_device": 1}, concurrency=4)
"""

try:
    import ray  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{__name__} needs the package ray; pip install 'nnrt[ray]'", name="ray") from error

from nnrt_client.ray.device_actor import DeviceActor
from nnrt_client.ray.device_process import DeviceProcess
from nnrt_client.ray.fleet import Fleet, start
from nnrt_client.ray.predictor import Predictor

__all__ = ["DeviceActor", "DeviceProcess", "Fleet", "Predictor", "start"]
