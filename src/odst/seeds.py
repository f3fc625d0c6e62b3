"""Randomness has a name: (seed, purpose, round, ...). Resuming equals never having stopped."""

import hashlib

import numpy as np


def key(seed: int, *name: str | int) -> int:
    """A 63-bit seed for (seed, *name), the same on every machine and in every process."""
    text = "/".join([str(seed), *map(str, name)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def stream(seed: int, *name: str | int) -> np.random.Generator:
    return np.random.default_rng(key(seed, *name))


def mix(values: np.ndarray, key: int) -> np.ndarray:
    """A keyed 64-bit hash of each value (splitmix64): a random number per pool id that needs no memory."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64(key & (2**64 - 1))
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class Shuffle:
    """Endless shuffled passes over range(n), at any place of the sequence and in constant memory.

    Pass e is a keyed permutation of range(n): a four-round Feistel network on the next even power of two,
    walked until it falls inside. So the order of 10^8 images takes no array, and a step number is the whole cursor.
    """

    def __init__(self, n: int, seed: int, *name: str | int):
        assert n > 0
        self.n, self.seed, self.name = n, seed, name
        self.half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """The elements at these places of the endless sequence."""
        places = np.asarray(places, dtype=np.int64)
        passes = places // self.n
        out = np.empty_like(places)
        for e in np.unique(passes):
            rows = passes == e
            out[rows] = self._permute(places[rows] % self.n, int(e))
        return out

    def _permute(self, x: np.ndarray, e: int) -> np.ndarray:
        keys = [key(self.seed, *self.name, e, r) for r in range(4)]
        y = self._feistel(x, keys)
        while (outside := y >= self.n).any():
            y[outside] = self._feistel(y[outside], keys)
        return y

    def _feistel(self, x: np.ndarray, keys: list[int]) -> np.ndarray:
        mask = np.uint64((1 << self.half) - 1)
        left, right = x.astype(np.uint64) >> np.uint64(self.half), x.astype(np.uint64) & mask
        for k in keys:
            left, right = right, left ^ (mix(right, k) & mask)
        return ((left << np.uint64(self.half)) | right).astype(np.int64)
