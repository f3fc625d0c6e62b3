"""What a release must hold, checked before anything is published.

python tools/release.py check 0.2.0   version, changelog, citation and addresses agree, or one line says what does not
python tools/release.py minimum       the oldest version of every dependency, as constraints for pip
python tools/release.py repack FILE   an sdist with the times of SOURCE_DATE_EPOCH: the same bytes from the same sources
"""

import gzip
import io
import os
import re
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
BESIDE = {"pandas<3"}  # which old datasets, whose pyarrow may be as old as ours, do not know


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def faults(version: str) -> list[str]:
    found = []
    if project()["version"] != version:
        found.append(f"pyproject.toml has version {project()['version']}, the tag says {version}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", _text("CHANGELOG.md"), re.MULTILINE):
        found.append(f"CHANGELOG.md has no line `## [{version}] - YYYY-MM-DD`")
    if f"\nversion: {version}\n" not in _text("CITATION.cff"):
        found.append(f"CITATION.cff does not have version {version}")
    if "Source" not in project().get("urls", {}):
        found.append("pyproject.toml names no Source under [project.urls]: add the public address of the repository")
    return found


def minimum() -> list[str]:
    """`name==oldest` for every dependency with a lower bound. torch is left out: its old builds bring gigabytes of CUDA."""
    extras = project()["optional-dependencies"]
    wanted = [*project()["dependencies"], *(one for extra in extras.values() for one in extra)]
    bounds = [re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", one) for one in wanted]
    pinned = {f"{match[1]}=={match[2]}" for match in bounds if match and match[1] != "torch"}
    return sorted(pinned | BESIDE)


def repack(file: Path) -> None:
    """setuptools writes the times of the day into an sdist."""
    epoch, packed = int(os.environ["SOURCE_DATE_EPOCH"]), io.BytesIO()
    with tarfile.open(file) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with open(file, "wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check", version]:
            if found := faults(version):
                sys.exit(found[0])
        case ["repack", file]:
            repack(Path(file))
        case ["minimum"]:
            print("\n".join(minimum()))
        case _:
            sys.exit(__doc__)
