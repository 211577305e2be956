"""Traces from the request to the device."""

from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import PLUGINS
from tracing.spans import in_file

from serving.conftest import StartServer
from serving.faces import FACES, face_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("face", FACES)
def test_a_request_of_a_trace(
    face: str,
    start_server: StartServer,
    start_daemon: StartDaemon,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its span is a child of the caller's, and the parent of the run's, on to that of the device."""
    path = tmp_path / "spans.jsonl"
    for name, text in (("SPAN_FILE", str(path)), ("OTEL_TRACES_EXPORTER", "file"), ("NNRT_TRACE", "1")):
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PYTHONPATH", f"{PLUGINS}:{PLUGINS.parent}")
    daemon = start_daemon("--traces")
    server = start_server(models, device=daemon.address)
    with face_of(face, server) as client:
        client.client.infer(
            "next",
            [client.input("x", np.zeros(3, np.float32))],
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
            request_id="7",
        )
    assert server.stop() == 0
    daemon.process.terminate()
    assert daemon.wait() == 0
    spans = {span.name: span for span in in_file(path) if span.trace_id == TRACE}
    above = PARENT
    for name in ("nnrt.serve.ModelInfer", "nnrt.pool.run", "nnrt.run", "nnrt.device.run"):
        assert spans[name].parent_id == above
        above = spans[name].id
    about = spans["nnrt.serve.ModelInfer"].attributes
    assert about["nnrt.face"] == face
    assert (about["nnrt.model"], about["nnrt.version"], about["nnrt.request"]) == ("next", "1", "7")
