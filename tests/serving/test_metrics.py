"""Metrics of a server."""

import re
import ssl
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from access.conftest import Access, Fleet
from metrics.scraping import value
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from serving.conftest import StartServer
from serving.served import MODELS, ServerProcess


def _metrics(url: str) -> str:
    reply = httpx.get(url)
    assert reply.status_code == 200
    return reply.text


def _port(server: ServerProcess) -> str:
    (url,) = re.findall(r"metrics are at (\S+)", server.log())
    return str(url)


def test_metrics(start_server: StartServer, models: Path) -> None:
    """They are on a port of their own, and on the face for HTTP; counters of requests have Triton's names."""
    server = start_server(models, "--metrics", "127.0.0.1:0")
    x = triton.InferInput("x", [3], "FP32")
    x.set_data_from_numpy(np.zeros(3, np.float32))
    wrong = triton.InferInput("z", [3], "FP32")
    wrong.set_data_from_numpy(np.zeros(3, np.float32))
    with triton.InferenceServerClient(server.grpc) as client:
        for _ in range(3):
            client.infer("next", [x])
        with pytest.raises(InferenceServerException):
            client.infer("next", [wrong])
    families = {family.name: family for family in text_string_to_metric_families(_metrics(_port(server)))}

    def of_next(name: str, **labels: str) -> float:
        return value(families, name, model="next", version="1", **labels)

    assert of_next("nv_inference_request_success") == 3
    assert of_next("nv_inference_count") == 9
    assert of_next("nv_inference_exec_count") == 3
    assert of_next("nv_inference_pending_request_count") == 0
    assert of_next("nv_inference_request_failure", reason="OTHER") == 1
    assert of_next("nv_inference_request_failure", reason="REJECTED") == 0
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    within = sum(of_next(f"nv_inference_{part}_duration_us") for part in parts)
    assert 0 < within < of_next("nv_inference_request_duration_us")
    assert of_next("nnrt_server_failed_requests_total", code="INVALID_PARAMETER") == 1
    assert of_next("nnrt_server_request_seconds_count") == of_next("nnrt_server_request_seconds_bucket", le="+Inf") == 3
    assert of_next("nnrt_server_request_seconds_sum") > 0
    assert of_next("nnrt_server_model_devices") == 1
    assert of_next("nnrt_server_model_state", state="READY") == 1
    assert of_next("nnrt_server_model_state", state="LOADING") == 0
    assert len(families["nnrt_server_model_devices"].samples) == len(MODELS)
    assert value(families, "nnrt_server_ready") == 1
    assert "process_resident_memory_bytes" in families
    assert {sample.labels["state"] for sample in families["nnrt_server_device_state"].samples if sample.value} == {
        "ready"
    }
    assert "nv_inference_request_success" in _metrics(f"http://{server.http}/metrics")
    openmetrics = httpx.get(_port(server), headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.text.endswith("# EOF\n")


def test_who_may_see_metrics(start_server: StartServer, models: Path, tmp_path: Path) -> None:
    """The port of metrics takes everybody who reaches it; the face for HTTP asks for the role `observe`."""
    access, fleet = Access(tmp_path), Fleet(tmp_path / "fleet")
    access.add("watch", "observe")
    server = start_server(models, *fleet.flags, "--access", str(access.path), "--metrics", "127.0.0.1:0")
    with httpx.Client(verify=ssl.create_default_context(cafile=fleet.ca)) as client:
        assert "nnrt_server_certificate_expiry_timestamp_seconds" in client.get(_port(server)).text
        assert client.get(f"https://{server.http}/metrics").status_code == 401
        headers = {"authorization": "Bearer token-of-watch"}
        assert client.get(f"https://{server.http}/metrics", headers=headers).status_code == 200
