"""Class names as names of folders, on any file system, no two of them alike."""

import hashlib
from collections.abc import Sequence

UNSAFE = set('<>:"/\\|?*%') | {chr(i) for i in range(32)} | {chr(127)}
DEVICES = {"con", "prn", "aux", "nul", *(f"{name}{i}" for name in ("com", "lpt") for i in range(1, 10))}
LONGEST = 180  # bytes; file systems take 255


def folder_names(classes: Sequence[str]) -> list[str]:
    """One for each class: what no file system takes is percent-encoded, and names that differ only in case get a number."""
    names: list[str] = []
    taken: set[str] = set()
    for one in classes:
        name, n = folder_name(one), 1
        while name.casefold() in taken:
            n += 1
            name = f"{folder_name(one)}~{n}"
        taken.add(name.casefold())
        names.append(name)
    return names


def folder_name(text: str) -> str:
    name = "".join(_encoded(letter) if letter in UNSAFE else letter for letter in text)
    if name[:1] in (".", " ") or name.partition(".")[0].casefold() in DEVICES:
        name = _encoded(name[0]) + name[1:]
    if name[-1:] in (".", " "):
        name = name[:-1] + _encoded(name[-1])
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST:
        mark = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        name = (
            name.encode("utf-8", "ignore")[: LONGEST - len(mark) - 1].decode("utf-8", "ignore").rstrip(". ")
            + f"~{mark}"
        )
    return name or "%"


def _encoded(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())
