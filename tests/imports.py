"""What a decoding process has imported. Imports little itself: such a process imports this module."""

import sys
from collections.abc import Iterator

from odst.data.decoding import Rejected
from odst.data.items import Item


class Report:
    """A part that holds no picture: it is rejected with the answer."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Item]:
        yield Item("report", None, self.read)

    def read(self) -> bytes:
        raise Rejected("torch" if "torch" in sys.modules else "no torch")
