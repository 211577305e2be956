"""What an installation without extras has."""

import subprocess
import sys


def test_the_command_needs_no_extra() -> None:
    without = "import sys; sys.modules.update(dict.fromkeys(('onnx', 'onnxruntime')))"
    subprocess.run([sys.executable, "-c", f"{without}; import nnrt_client.cli"], check=True, timeout=60)
