"""Fetch one file. A cut download goes on where it stopped; a file is seen under its name only when its checksum is right."""

import errno
import shutil
import time
from pathlib import Path
from typing import Any

import pooch

from odst.errors import UserError
from odst.progress import stage

_CHUNK = 1 << 20
_PATIENCE = 3  # connections in a row that brought nothing


def fetch(url: str, path: Path, checksum: str) -> None:
    """Make `path` hold what `url` serves; `checksum` is "md5:..." or "sha256:...". A file already there is only checked."""
    if path.exists():
        if not pooch.hashes.hash_matches(path, checksum):
            raise UserError(
                f"{path}: its checksum is not the published one ({checksum}). Move it away and type the same again."
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=_Resuming(path))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"{url}: what came is not the file that was published ({error}). Nothing was kept. Try again later, or "
            f"put the right file at {path} yourself."
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{path.parent}: the disk is full. Free some space and type the same again, it goes on where it stopped; "
                "or set ODST_DATA to a folder on another disk."
            ) from None
        raise


class _Resuming:
    """A pooch downloader that keeps what it has in a .part file beside the target, and asks only for the rest."""

    def __init__(self, path: Path):
        self.path, self.part = path, path.with_name(f"{path.name}.part")

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        import requests  # pooch's own dependency, slow to import
        from urllib3.exceptions import HTTPError

        vain = 0
        while True:
            before = self._have()
            try:
                if self._receive(url):
                    self.part.replace(output_file)
                    return
                fault = "the connection was closed"
            except (requests.RequestException, HTTPError) as error:
                fault = type(error).__name__
            vain = 0 if self._have() > before else vain + 1
            if vain == _PATIENCE:
                kept = f" {self._have():,} bytes are kept and not asked for again." if self._have() else ""
                raise UserError(
                    f"{url}: cannot be fetched ({fault}).{kept} Check the network and type the same again, or fetch the "
                    f"file by other means and put it at {self.path}."
                )
            time.sleep(0.3 * vain)

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self, url: str) -> bool:
        """One connection. True when the file is whole."""
        import requests

        have = self._have()
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with requests.get(url, headers=headers, stream=True, timeout=30) as answer:
            if answer.status_code == 416:  # nothing behind what we have: it is whole, or it is another file's
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                    return True
                self.part.unlink()
                return False
            if answer.status_code not in (200, 206):
                raise UserError(
                    f"{url}: the server answers {answer.status_code} {answer.reason}. The file may have moved; fetch it by "
                    f"other means and put it at {self.path}."
                )
            have = have if answer.status_code == 206 else 0
            rest = int(answer.headers["Content-Length"]) if "Content-Length" in answer.headers else None
            if rest is not None and rest > (free := shutil.disk_usage(self.part.parent).free):
                raise UserError(
                    f"{self.path}: {rest:,} bytes are to come and {free:,} are free. Free some space, or set ODST_DATA to "
                    "a folder on another disk."
                )
            total = None if rest is None else have + rest
            with (
                self.part.open("ab" if have else "wb") as file,
                stage(f"get {self.path.name}", total, "bytes", have) as advance,
            ):
                # The bytes as they lie on the server: some call a .tar.gz gzip-encoded text, which would be unpacked here.
                for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                    file.write(chunk)
                    advance(len(chunk))
        return total is None or self._have() == total
