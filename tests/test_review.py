"""The review page in a real browser: clicks and keys become marks, and `odst audit` reads of them what the page said."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from browser import CHROMIUM, Page, chromium
from commands import fails, odst
from odst.files import write_text
from odst.report.review import WORDS, class_keys, paged, render, render_review
from odst.report.serving import ReviewServer
from odst.report.sprites import Album
from odst.run.audit import check_own, drawn_ranks, draws_file, ranked
from odst.run.directory import RunDir
from odst.run.marks import Mark, read_marks, run_hash, write_marks
from odst.seeds import stream
from reviewed import bar_run, truth_of, truthful
from runs import NAMES

DRAWS = 45  # fewer than were selected, two pages a class
browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
ROWS = """[...document.querySelectorAll('#classes tr')].map(r => [r.dataset.name, +r.dataset.seen, +r.dataset.wrong, +r.dataset.certified])"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return bar_run(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="module")
def file(run: RunDir, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "review.html"
    assert odst("review", run.path, "--out", page, "--draws", DRAWS, "--round", 2).code == 0
    return page


@pytest.fixture
def page(file: Path, tmp_path: Path):
    with chromium(tmp_path / "profile") as opened:
        opened.view(1200, 900)
        opened.open(file)
        yield opened
        assert opened.faults == []
        assert {urlsplit(url).scheme for url in opened.requests} <= {"file", "data"}


def story_of(file: Path) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)[1])


def nth(page: Page, i: int) -> str:
    """A selector of the i-th tile of the current mode's first page."""
    return f'.tile[data-id="{page.run(f"mode.pages[0].tiles[{i}].id")}"]'


def test_the_page_holds_the_draws_and_hides_their_scores(run: RunDir, file: Path) -> None:
    story, sets = story_of(file), ranked(run, 2)
    audit, triage = story["modes"]
    shown = {name: [t["id"] for p in audit["pages"] if p["class"] == name for t in p["tiles"]] for name in NAMES}
    for one, places in zip(sets, drawn_ranks(run, 2, sets, DRAWS), strict=True):
        assert shown[one.name] == one.ids[places].tolist()  # in the order drawn, which is shuffled
    assert shown[NAMES[1]] != sorted(shown[NAMES[1]])
    for tile in (t for p in audit["pages"] for t in p["tiles"]):
        assert set(tile) == {"id", "hash", "rank"}
    assert not {t["id"] for p in triage["pages"] for t in p["tiles"]} & {j for ids in shown.values() for j in ids}
    titles = " ".join(p["title"] for p in triage["pages"])
    assert all(
        f"{why}: is each of these" in titles for why in ("Near the threshold", "Most unlike the labelled images")
    )
    assert "what you leave unmarked on a confirmed page is right, and will be learnt as that class" in triage["about"]
    assert "<script>alert" not in file.read_text(encoding="utf-8")


def test_triage_begins_on_both_sides_of_the_threshold(run: RunDir, file: Path) -> None:
    chosen = set(run.selection(2)["pool_id"].to_pylist())
    near = [p for p in story_of(file)["modes"][1]["pages"] if p["title"].startswith("Near the threshold")]
    taken = [[tile["id"] in chosen for tile in page["tiles"][:6]] for page in near]
    assert any(any(one) and not all(one) for one in taken)  # a class may have none below


@browser
@pytest.mark.slow
def test_clicks_and_keys_mark_and_the_audit_reads_what_the_page_says(run: RunDir, page: Page, file: Path, tmp_path: Path) -> None:  # fmt: skip
    truth, story = truth_of(run), story_of(file)
    page.click("#save summary")
    page.click("#who")
    page.type('Änn, "reviewer" <b>')
    for p, one in enumerate(story["modes"][0]["pages"]):
        for tile in one["tiles"]:
            if truth[tile["id"]] != one["class"]:
                page.click(f'.tile[data-id="{tile["id"]}"]')
        page.run(f"move({{page: {p}, tile: 0}}, true)")  # out of the field, or back from the page before
        page.key("Enter")
    said = page.run(ROWS)
    assert [row[1] for row in said] == [min(DRAWS, len(one)) for one in ranked(run, 2)]
    page.run("document.getElementById('overview').open = true")
    words = page.run("document.getElementById('classes').innerText")
    assert page.run("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('#overview .scroll'))")
    assert "δ 0.05 over 3 classes: 0.0167" in words
    for ending in ("json", "csv"):
        got = page.download(f"#{ending}", tmp_path, f"marks-run-round-2.{ending}")
        (run.audit_file(2)).unlink(missing_ok=True)
        result = odst("audit", run.path, "--marks", got, "--round", 2)
        assert result.code == 0, result.err
        found = run.audit(2)
        assert [[name, one["seen"], one["wrong"], one["certified"]] for name, one in found["classes"].items()] == said
        for one in found["classes"].values():
            assert f"at least {100 * one['bound']:.1f} % of all {one['selected']:,}" in words
        assert found["by"] == ['Änn, "reviewer" <b>']
    run.audit_file(2).unlink()
    marks = read_marks(got)
    assert {(m.pool_id, m.verdict) for m in marks} == {(m.pool_id, m.verdict) for m in truthful(run, 2, DRAWS)}


@browser
@pytest.mark.slow
def test_ranges_relabels_undo_and_what_a_reload_keeps(page: Page, file: Path) -> None:
    def marks() -> list:
        return page.run("mode.pages[0].tiles.map(t => marks()[t.id] ?? null)")

    page.click(nth(page, 1))
    page.click(nth(page, 4), shift=True)
    assert marks()[:6] == [None, "x", "x", "x", "x", None]
    page.key("z")
    assert marks()[:6] == [None, "x", None, None, None, None]
    page.click(nth(page, 1))
    assert marks()[1] is None  # a second click takes the mark back
    page.key("ArrowRight")
    page.key("3")
    page.key("ArrowRight")
    page.key("u")
    page.key("ArrowDown")
    page.key("x")
    columns = page.run("columns")
    assert (marks()[2], marks()[3], marks()[3 + columns]) == (2, "u", "x")
    assert page.run(f"document.querySelector({json.dumps(nth(page, 2))}).dataset.mark") == NAMES[2]
    page.key("Enter")
    live = page.run("document.getElementById('live').textContent")
    assert f"30 of {DRAWS} seen, 3 wrong" in live and page.run("at.page") == 1 and "certified" not in live
    page.click(nth(page, 0))
    page.key("1")  # the key of the class it stands under: right
    assert marks()[0] is None and page.run(ROWS)[0][1:3] == [30, 3]
    before = page.run("JSON.stringify([kept.marks, kept.seen])")
    page.open(file)
    assert page.run("JSON.stringify([kept.marks, kept.seen])") == before
    assert page.run(ROWS)[0][1:3] == [30, 3]
    page.click('input[value="triage"]')
    assert page.run("mode.name") == "triage" and page.run(ROWS)[0][1:3] == [0, 0]  # never mixed
    page.run("for (const one of document.querySelectorAll('.more details')) one.open = true")
    said = page.run("document.body.innerText")
    assert "odst run RUN --marks FILE" in said and "`" not in said and "what that says" not in said


@browser
@pytest.mark.slow
def test_five_thousand_pictures_scroll_without_a_frame_above_a_tenth_of_a_second(tmp_path: Path) -> None:
    x = stream(0, "scroll").integers(0, 256, size=(5000, 32, 32, 3), dtype=np.uint8)
    album = Album(x.shape[1:], 96)
    tiles = [{"id": j, "hash": str(j), "rank": j} for j in range(5000)]
    pages = paged(tiles, "Is each of these a cat?", "cat", "cat", album, x)
    groups = [{"name": "cat", "draws": 5000, "selected": 5000, "sets": [], "bounds": []}]
    mode = {
        "name": "audit",
        "mode": "audit",
        "counts": True,
        "title": "Audit",
        "about": "",
        "rules": "",
        "groups": groups,
        "pages": pages,
    }
    story = {"run_hash": "0", "round": 1, "draws": 5000, "classes": ["cat", "dog"], "modes": [mode], "target_text": "95 %", "delta": 0.05, "share": 0.05, "split": 1, "words": WORDS, "file": "marks"}  # fmt: skip
    write_text(tmp_path / "review.html", render(story, album, "5,000", "", None))
    scroll = """new Promise(done => {
      let last = performance.now(), worst = 0, y = 0, filled = 0;
      const end = document.documentElement.scrollHeight - innerHeight;
      const next = now => {
        worst = Math.max(worst, now - last); last = now;
        filled = Math.max(filled, document.querySelectorAll('.tile').length);
        if (y >= end) return done([worst, filled]);
        y += 400; scrollTo({ top: y, behavior: 'instant' }); requestAnimationFrame(next);
      };
      scrollTo({ top: 0, behavior: 'instant' });
      requestAnimationFrame(now => { last = now; next(now); });
    })"""
    with chromium(tmp_path / "profile") as page:
        page.view(1200, 900)
        page.open(tmp_path / "review.html")
        page.send("Performance.enable", timeDomain="threadTicks")
        worst, height = 0.0, page.run("document.documentElement.scrollHeight")
        for y in range(0, height, 400):  # what each frame asks of the page's own thread, whoever else uses this machine
            before = busy(page)
            page.run(f"new Promise(done => {{ scrollTo({{ top: {y}, behavior: 'instant' }}); requestAnimationFrame(() => requestAnimationFrame(done)); }})")  # fmt: skip
            worst = max(worst, busy(page) - before)
        passes = [page.run(scroll)]
        while passes[-1][0] >= 100 and len(passes) < 6:
            passes.append(page.run(scroll))
        assert page.faults == []
    assert height > 30_000
    assert worst < 0.1
    assert max(filled for _, filled in passes) < 1500  # virtualised: never all at once
    if os.getloadavg()[0] < 2 * (os.cpu_count() or 1):  # frames by the clock, where it is ours
        assert min(frame for frame, _ in passes) < 100, passes


def busy(page: Page) -> float:
    """Seconds that the page's thread has worked."""
    return next(one["value"] for one in page.send("Performance.getMetrics")["metrics"] if one["name"] == "TaskDuration")


@browser
@pytest.mark.slow
def test_a_phone_and_a_dark_screen_show_it_without_scrolling_sideways(page: Page, file: Path) -> None:
    for width, dark in ((390, False), (390, True), (1200, True)):
        page.view(width, 800, dark=dark, mobile=width < 500)
        page.open(file)
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("getComputedStyle(document.body).backgroundColor") == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")  # fmt: skip
        page.click(nth(page, 2))
        assert page.run("Object.values(marks())") == ["x"]
        page.key("z")
        assert page.run("Object.values(marks())") == []
        page.run("for (const one of document.querySelectorAll('.more details')) one.open = true")
        assert page.run("document.documentElement.scrollWidth") <= width
        page.run(
            "document.querySelector('.more details').open = false, document.getElementById('overview').open = false, scrollTo(0, 0)"
        )
        assert page.run("bar.getBoundingClientRect().height") < (0.2 * 640 if width < 500 else 150)
        assert (
            page.run("(g => bar.getBoundingClientRect().top - g.top)(mode.pages[0].grid.getBoundingClientRect())") > 150
        )


@browser
@pytest.mark.slow
def test_only_what_was_on_the_screen_is_confirmed(page: Page, file: Path) -> None:
    def confirmed() -> list[int]:
        return page.run("mode.pages.flatMap((one, p) => pageSeen(one) ? [p] : [])")

    for auto in (False, True, True, True):  # a key held down
        page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", autoRepeat=auto)
    assert confirmed() == [0]
    page.run("document.getElementById('confirm').focus()")
    for auto in (False, True, True):
        page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r", autoRepeat=auto)
    assert confirmed() == [0, 1]
    page.run("document.activeElement.blur(), mode.pages[4].box.scrollIntoView({ block: 'start' }), 1")
    page.run("new Promise(done => setTimeout(done, 300))")
    assert page.run("document.getElementById('confirm').textContent") == "✓ confirm page 5"
    page.click("#confirm")
    assert confirmed() == [0, 1, 4]  # what is on the screen, not where the last click was
    page.run("localStorage.clear()")
    page.view(360, 400, mobile=True)  # a page is higher than this screen
    page.open(file)
    seen, looked = 0, 0
    while not confirmed():
        page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shown = page.run("mode.pages[0].shown.filter(Boolean).length")
        assert looked < 20 and shown >= seen
        seen, looked = shown, looked + 1
        page.key("Enter")
    assert seen == 30 and looked > 2


def test_a_class_has_its_own_letter_or_the_next_free_one() -> None:
    assert class_keys(["2", "3", "cat", "b"]) == ["2", "3", "1", "b"]
    assert class_keys(["x", "A", "a"]) == ["1", "a", "2"]
    many = class_keys([f"class {c}" for c in range(100)])
    assert many[:10] == list("1234567890") and many[-1] is None and not {"x", "u", "z"} & set(filter(None, many))


# served ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(run: RunDir, tmp_path: Path):
    def rendered(saved: list[Mark]) -> str:
        return render_review(run, t=2, draws=DRAWS, saved=saved)

    made = ReviewServer(tmp_path / "marks" / "round-2.json", rendered, lambda marks: check_own(run, marks, "marks"))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def ask(server: ReviewServer, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_only_who_has_the_token_is_served(run: RunDir, server: ReviewServer) -> None:
    assert server.server_address[0] == "127.0.0.1" and len(server.token) >= 32
    assert ask(server, "GET", "/")[0] == 403
    assert ask(server, "GET", f"/{server.token[:-1]}x/")[0] == 403
    assert ask(server, "GET", f"/{server.token}/", Host="evil.example")[0] == 403
    code, text = ask(server, "GET", f"/{server.token}/")
    assert code == 200 and "connect-src 'self'" in text
    body = json.dumps({"format": "odst-marks-1", "marks": [m.to_json() for m in truthful(run, 2, DRAWS)]}).encode()
    assert ask(server, "POST", "/marks", body)[0] == 403
    assert ask(server, "POST", f"/{server.token}/marks", body, Origin="http://evil.example")[0] == 403
    assert not server.file.exists()
    assert ask(server, "POST", f"/{server.token}/marks", body)[0] == 200
    assert len(read_marks(server.file)) == len(truthful(run, 2, DRAWS))


def test_marks_that_do_not_belong_are_not_written(run: RunDir, server: ReviewServer) -> None:
    foreign = truthful(run, 2, DRAWS)[0].to_json() | {"run_hash": "0"}
    for body in (b"", b"{", b"[]", json.dumps({"format": "odst-marks-1", "marks": [foreign]}).encode()):
        assert ask(server, "POST", f"/{server.token}/marks", body)[0] == 400
    assert not server.file.exists()


def test_a_refusal_is_one_answer_and_so_are_damaged_marks(server: ReviewServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as plain:
        plain.sendall(b"GET /nobody/ HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(4096), b""))
    assert answer.count(b"HTTP/1.") == 1 and b"403" in answer
    server.file.parent.mkdir()
    server.file.write_text("{")
    code, text = ask(server, "GET", f"/{server.token}/")
    assert code == 409 and "not marks of a review page" in text


def test_the_first_page_of_a_round_fixes_the_number_of_draws(run: RunDir, tmp_path: Path) -> None:
    copy = RunDir(Path(shutil.copytree(run.path, tmp_path / "run")))
    draws_file(copy, 2).unlink(missing_ok=True)
    page = tmp_path / "page.html"
    assert odst("review", copy.path, "--round", 2, "--draws", DRAWS, "--out", page).code == 0
    made = page.read_bytes()
    for more in ((), ("--serve",)):
        said = fails("review", copy.path, "--round", 2, "--draws", 30, *more)
        assert f"made with {DRAWS} draws a class, got 30. Go on with --draws {DRAWS}" in said
    assert not (copy.path / "review.html").exists()
    assert odst("review", copy.path, "--round", 2, "--out", page).code == 0 and page.read_bytes() == made
    assert (
        odst("review", copy.path, "--round", 1, "--draws", 30, "--out", page).code == 0
    )  # another round, another number
    write_marks(tmp_path / "marks.json", truthful(copy, 2, 30))
    assert f"with {DRAWS} draws a class (review.json), and these marks are of 30" in fails("audit", copy.path, "--marks", tmp_path / "marks.json")  # fmt: skip
    file = draws_file(copy, 2)
    file.write_text(file.read_text().replace(str(DRAWS), "30"))
    assert "has changed since it was written" in fails("review", copy.path, "--round", 2, "--draws", 30)


def sent(server: ReviewServer, marks: list[Mark], gone: list[dict] | None = None) -> dict:
    body = {"format": "odst-marks-1", "marks": [mark.to_json() for mark in marks], "gone": gone or []}
    code, text = ask(server, "POST", f"/{server.token}/marks", json.dumps(body).encode())
    assert code == 200, text
    return json.loads(text)


def test_what_a_tab_has_not_touched_stays_on_file(run: RunDir, server: ReviewServer) -> None:
    marks = truthful(run, 2, DRAWS)
    sent(server, marks[:3])
    assert sent(server, [replace(marks[0], verdict="none"), marks[5]])["marks"] == 4
    assert [(m.pool_id, m.verdict) for m in read_marks(server.file)] == [
        (marks[0].pool_id, "none"), *((m.pool_id, m.verdict) for m in (*marks[1:3], marks[5])),
    ]  # fmt: skip
    sent(server, [replace(marks[1], who="ben", verdict="wrong")])  # two people are two marks
    assert {m.who for m in read_marks(server.file) if m.pool_id == marks[1].pool_id} == {"anna", "ben"}
    gone = {"mode": "audit", "counts": True, "class": marks[1].name, "pool_id": marks[1].pool_id, "who": "ben"}
    assert sent(server, [], [gone])["marks"] == 4 and {m.who for m in read_marks(server.file)} == {"anna"}
    assert ask(server, "POST", f"/{server.token}/marks", b'{"format": "odst-marks-1", "marks": []}')[0] == 400
    assert len(read_marks(server.file)) == 4


WRITTEN = "new Promise(done => { const look = () => Object.values(kept.pending).some(one => Object.keys(one).length) ? setTimeout(look, 30) : done(document.getElementById('kept').textContent); look(); })"


@browser
@pytest.mark.slow
def test_no_mark_is_lost_on_a_reload_nor_to_another_tab(server: ReviewServer, tmp_path: Path) -> None:
    with chromium(tmp_path / "a") as a, chromium(tmp_path / "b") as b:
        for tab in (a, b):
            tab.view(1200, 900)
            tab.open(server.url)
        a.click(nth(a, 3))
        a.key("Enter")
        a.click('.sheet[data-page="1"] .tile')  # a mark on a page that is not confirmed
        before = a.run(WRITTEN) and a.run("JSON.stringify([kept.marks, kept.seen])")
        b.run("move({ page: 2, tile: 0 }, true)")
        b.key("Enter")
        assert "reload to see it" in b.run(WRITTEN)
        marks = read_marks(server.file)
        assert len(marks) == 60 and [m.verdict for m in marks].count("wrong") == 1
        a.open(server.url)
        kept, now = (json.loads(text) for text in (before, a.run("JSON.stringify([kept.marks, kept.seen])")))
        assert now[0] == kept[0] and len(now[0]["audit"]) == 2 and now[1]["audit"].keys() > kept[1]["audit"].keys()
        assert a.run("mode.pages.map(pageSeen).slice(0, 4)") == [True, False, True, False]
        b.key("z")  # takes the page back that it had confirmed
        b.run(WRITTEN)
        assert len(read_marks(server.file)) == 30
        assert a.faults == b.faults == []


@browser
@pytest.mark.slow
def test_the_served_page_writes_its_marks_and_finds_them_again(
    run: RunDir, server: ReviewServer, tmp_path: Path
) -> None:
    with chromium(tmp_path / "profile") as page:
        page.view(1200, 900)
        page.open(server.url)
        page.click(nth(page, 3))
        page.key("Enter")
        assert "30 marks in marks/round-2.json" in page.run(WRITTEN)
        marks = read_marks(server.file)
        assert [m.verdict for m in marks].count("wrong") == 1 and len(marks) == 30
        assert {m.run_hash for m in marks} == {run_hash(run, 2)}
        page.run("localStorage.clear()")
        page.open(server.url)
        assert page.run(ROWS)[0][1:3] == [30, 1]
        assert page.faults == []


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(run: RunDir) -> None:
    command = [sys.executable, "-c", "from odst.cli import main; main()", "review", str(run.path), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as process:  # fmt: skip
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32,}/", process.stdout.readline())
        assert address is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_what_cannot_be_reviewed_is_one_line(run: RunDir, tmp_path: Path) -> None:
    assert "--draws" in fails("review", run.path, "--draws", 0)
    assert "round 0 has no selection" in fails("review", run.path, "--round", 0)
    assert "no run directory" in fails("review", tmp_path)
    assert "--out: not with --serve" in fails("review", run.path, "--serve", "--out", tmp_path / "page.html")
    assert "--port: not with a page without --serve" in fails("review", run.path, "--port", 3)
    assert "--draws, --out: not with --import" in fails("review", run.path, "--import", "x", "--draws", 3, "--out", "y")
