"""Configs that nobody could run: a whole one with values, keys and bytes that do not belong there, drawn from a seed."""

from collections.abc import Iterator

import numpy as np

VALUES = (
    "1e308", "-1e308", "nan", "inf", "-inf", "0", "-1", "1", "2", "0.5", "99999999999999999999", "1e-320", "true", "false", '""', '"x"', '"auto"',
    '"\\u0000"', '"../../etc/passwd"', '"sys:exit"', '"os:_exit"', '"builtins:exec"', '"torch:x"', '"hf:x"', '"x" * 3', "[]", "[1e308]", "[-1]", "[nan]",
    '["x"]', "[[[]]]", "{}", "{ x = 1 }", "[{}]", "[{ steps = -5 }]", "[{ steps = 3, lr = 1e308 }]", "[{ steps = 3, lr = nan }]", "[{ epochs = 1e9 }]",
    "[{ steps = 10000000000000000000000 }]", "2024-01-01", "'''a\nb'''", '"' + "y" * 5000 + '"', "0x7fffffffffffffff", "[" * 300 + "]" * 300,
)  # fmt: skip
KEYS = {
    "data": ("labelled", "val_in", "val_out", "pool", "test", "size", "fit", "excluded", "world", "task", "selection", "pool_truth", "corruptions", "out_test", "x"),
    "method": ("name", "alpha", "alpha_in", "alpha_out", "ratio", "k", "max_copies", "damping", "rest_weight", "pick", "promise", "x"),
    "model": ("name", "pretrained", "weights", "freeze", "backbone", "x"),
    "training": ("batch", "phases", "weight_decay", "momentum", "ema", "precision", "accumulate", "students", "backbone_lr", "x"),
    "run": ("seed", "device", "checkpoint_seconds", "stop_on_harm", "labels_alone", "x"),
}  # fmt: skip


def configs(whole: str, seed: int, n: int) -> Iterator[tuple[str, bytes]]:
    """`n` of them, each with what was done to it."""
    yield "2,000 brackets", f"x = {'[' * 2000}{']' * 2000}\n".encode()
    yield "nothing", b""
    for i in range(max(0, n - 2)):
        rng = np.random.default_rng([seed, 14, i])
        text, said = whole, []
        for _ in range(int(rng.integers(1, 3))):
            section = str(rng.choice(list(KEYS)))
            key, value = str(rng.choice(KEYS[section])), str(rng.choice(np.array(VALUES, object)))
            lines, inside, done = [], "", False
            for line in text.splitlines():
                inside = line.strip("[] ") if line.startswith("[") else inside
                if inside == section and line.startswith(f"{key} ="):
                    line, done = f"{key} = {value}", True
                lines.append(line)
            text = "\n".join(lines)
            if not done:
                text = text.replace(f"[{section}]", f"[{section}]\n{key} = {value}")
            said.append(f"{section}.{key} = {value[:40]}")
        raw = bytearray(text.encode())
        if rng.random() < 0.25:
            at = int(rng.integers(len(raw)))
            raw[at : at + int(rng.integers(0, 9))] = rng.bytes(int(rng.integers(0, 5)))
            said.append(f"other bytes at {at}")
        yield ", ".join(said), bytes(raw)
