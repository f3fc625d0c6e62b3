"""EfficientNet-Lite 0 to 2 (Google 2020) as encoders: EfficientNet without squeeze-and-excitation, ReLU6 for swish."""

import math

from torch import nn

from odst.vision.mobilenet import Stage, encoder

STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3  # TensorFlow's Lite models subtract 127 from a byte and divide by 128


def efficientnet_lite(width: float, depth: float) -> nn.Sequential:
    """Stem and head keep their channels, the first and the last stage their one block; all else is scaled."""
    stages = [
        stage._replace(
            repeats=stage.repeats if stage in (STAGES[0], STAGES[-1]) else math.ceil(depth * stage.repeats),
            outputs=_channels(width * stage.outputs),
        )
        for stage in STAGES
    ]
    return encoder(stages, MEAN, STD, tensorflow=True)


def _channels(wanted: float) -> int:
    """The nearest multiple of 8, but never more than a tenth below what was asked for."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8
