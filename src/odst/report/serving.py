"""`odst review --serve`: the page on this machine's own address behind a random token; its marks go into the run directory."""

import hmac
import json
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from odst.errors import UserError
from odst.run.marks import Mark, parse_marks, read_marks, write_marks

LARGEST = 64 << 20  # bytes of marks that are taken at once


class ReviewServer(ThreadingHTTPServer):
    """`render` makes the page from the marks on file; `check` raises UserError for marks that do not belong."""

    daemon_threads = True

    def __init__(
        self, file: Path, render: Callable[[list[Mark]], str], check: Callable[[list[Mark]], None], port: int = 0
    ):
        self.file, self.render, self.check = file, render, check
        self.token, self.writing = secrets.token_urlsafe(24), Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def on_file(self) -> list[Mark]:
        return read_marks(self.file) if self.file.exists() else []

    def take(self, raw: bytes) -> dict[str, Any]:
        """Write what a page has changed, picture by picture: another tab may have written others. What to tell the person, and
        how many marks there are now."""
        sent = json.loads(raw)
        gone = {
            (one["mode"], bool(one["counts"]), one["class"], one["pool_id"], one["who"]) for one in sent.get("gone", [])
        }
        marks = parse_marks(raw, "the page's marks") if sent.get("marks") or not gone else []
        self.check(marks)
        with self.writing:
            kept = {_key(mark): mark for mark in self.on_file()}
            kept = {key: mark for key, mark in kept.items() if key not in gone} | {_key(mark): mark for mark in marks}
            if kept:
                write_marks(self.file, list(kept.values()))
            else:  # everything was undone
                self.file.unlink(missing_ok=True)
        where = f"{self.file.parent.name}/{self.file.name}"
        said = f"{len(kept):,} {'mark' if len(kept) == 1 else 'marks'} in {where}." if kept else "Nothing is confirmed, so nothing is written."  # fmt: skip
        return {"said": said, "marks": len(kept)}


def _key(mark: Mark) -> tuple[str, bool, str, int, str]:
    """One person's word on one picture: two people are two marks, of which the audit counts the stricter."""
    return mark.mode, mark.draws is not None, mark.name, mark.pool_id, mark.who


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if not self.path.endswith("/"):
            self._answer(404, "There is nothing here.")
            return
        try:
            page = self.server.render(self.server.on_file())
        except (UserError, OSError) as error:  # the marks on file were damaged, or the run's pictures are gone
            self._answer(409, " ".join(str(error).split()))
            return
        self._answer(200, page, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        if not self._allowed() or not self._own_page():
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 < length <= LARGEST or not self.path.endswith("/marks"):
                raise UserError("no marks in it")
            answer = json.dumps(self.server.take(self.rfile.read(length)))
            self._answer(200, answer, "application/json")
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OSError,
            RecursionError,
        ) as error:  # UserError is a ValueError
            self._answer(400, " ".join(str(error).split()))

    def _allowed(self) -> bool:
        """Only who knows the token, and only under our own name: a page elsewhere may have its name point here."""
        host = self.headers.get("Host", "") in (
            f"127.0.0.1:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        )
        token = self.path.split("/")[1] if self.path.count("/") == 2 else ""
        if host and hmac.compare_digest(token.encode(), self.server.token.encode()):
            return True
        self._answer(403, "This address needs the token that `odst review --serve` has printed.")
        return False

    def _own_page(self) -> bool:
        origin = self.headers.get("Origin")
        if origin is None or origin.removeprefix("http://") == self.headers.get("Host"):
            return True
        self._answer(403, "Another page has no business here.")
        return False

    def _answer(self, code: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        raw = text.encode()
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind), ("Content-Length", str(len(raw))), ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """The token stands in every address: nothing is logged."""
