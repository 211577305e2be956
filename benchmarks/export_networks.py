"""Export of the networks in families/ to ONNX files with their inputs. Needs `nnrt[torch,onnxruntime]`.

    python benchmarks/export_networks.py build/networks

Next to each file lies an .npz file of the same name, whose arrays are named `0/x`, `1/x` for the first and second run.
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from families import classification, detection, images, others, speech, texts, vision_transformers
from families.formats import Feeds, convert
from families.network import DYNAMO, Network
from torch import nn

FAMILIES = (classification, vision_transformers, texts, detection, images, speech, others)
OPSET = 17
"""Opset of the TorchScript exporter; the dynamo exporter uses its own default."""


def every_network() -> Iterator[Network]:
    for family in FAMILIES:
        yield from family.NETWORKS


def make(network: Network) -> nn.Module:
    """Build the network with the same random weights in each call, and random statistics of batch normalizations."""
    torch.manual_seed(1)
    module = network.make().eval()
    for part in module.modules():
        mean, variance = getattr(part, "running_mean", None), getattr(part, "running_var", None)
        if mean is not None and variance is not None:
            mean.normal_(0, 0.1)
            variance.uniform_(0.5, 1.5)
    return module


def export(network: Network, exporter: str, path: Path) -> None:
    """Export a network to an ONNX file with one of torch's exporters."""
    torch.manual_seed(2)
    args = tuple(one.example(network.sizes[0]) for one in network.inputs.values())
    named = {name: one.dynamic_dims for name, one in network.inputs.items() if one.dynamic_dims}
    names = {"input_names": list(network.inputs), "output_names": list(network.outputs)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == DYNAMO:
            free = tuple(one.dynamic_dims or None for one in network.inputs.values())
            torch.onnx.export(
                make(network), args, path, dynamo=True, external_data=False, dynamic_shapes=free, verbose=False, **names
            )
        else:
            torch.onnx.export(make(network), args, path, dynamo=False, opset_version=OPSET, dynamic_axes=named, **names)


def make_feeds(network: Network) -> list[Feeds]:
    """Return the network's inputs in each of its sizes."""
    torch.manual_seed(3)
    return [{name: one.example(sizes).numpy() for name, one in network.inputs.items()} for sizes in network.sizes]


def write_files(network: Network, folder: Path) -> Iterator[tuple[str, str]]:
    """Write the ONNX and .npz files of a network; yield the name and the reason of each failed export."""
    feeds = make_feeds(network)
    for exporter in network.exporters:
        path = folder / f"{network.slug}.{exporter}.fp32.onnx"
        try:
            export(network, exporter, path)
            _write_feeds(path, network, exporter, "fp32", feeds)
        except Exception as error:
            path.unlink(missing_ok=True)
            yield path.stem, f"{type(error).__name__}: {error}".partition("\n")[0]
            continue
        if exporter != network.exporters[0]:
            continue
        for name in network.formats:
            into = folder / f"{network.slug}.{exporter}.{name.replace(' ', '-')}.onnx"
            try:
                convert(path, into, name, feeds)
                _write_feeds(into, network, exporter, name, feeds)
            except Exception as error:
                into.unlink(missing_ok=True)
                yield into.stem, f"{type(error).__name__}: {error}".partition("\n")[0]


def _write_feeds(path: Path, network: Network, exporter: str, form: str, feeds: list[Feeds]) -> None:
    """Write the .npz file next to an ONNX file: the network's description, and values for the ONNX file's inputs."""
    taken = {info.name for info in onnx.load(path).graph.input}
    about = {"family": network.family, "network": network.name, "exporter": exporter, "format": form}
    about |= {f"constant {name}": str(value) for name, value in network.constants.items()}
    arrays: dict[str, Any] = {f"about/{key}": np.array(value) for key, value in about.items()}
    for run, one in enumerate(feeds):
        arrays |= {f"{run}/{name}": array for name, array in one.items() if name in taken}
    np.savez(path.with_suffix(".npz"), **arrays)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/networks")
    wanted = sys.argv[2:]
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("torch.onnx").setLevel(logging.CRITICAL)  # Failures are printed below, in one line each.
    torch.backends.mha.set_fastpath_enabled(False)  # The fast path has no ONNX operators.
    folder.mkdir(parents=True, exist_ok=True)
    for network in every_network():
        if wanted and not any(word in network.slug for word in wanted):
            continue
        failed = dict(write_files(network, folder))
        print(f"{network.family}: {network.name}", *(f"\n  {name}: {why}" for name, why in failed.items()), flush=True)


if __name__ == "__main__":
    main()
