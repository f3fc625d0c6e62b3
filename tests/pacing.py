"""Work that takes a while and says on which node it was done: for nodes that are killed in the middle of it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from odst.files import write_text


@dataclass(frozen=True)
class Pacing:
    folder: Path

    def __call__(self) -> Callable[[int], dict]:
        def part(number: int) -> dict:
            time.sleep(0.7)
            write_text(self.folder / f"{number:05d}.txt", str(number))
            return {"number": number, "raylet": os.getppid()}

        return part
