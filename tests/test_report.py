"""The page of a run: what it says, what it embeds, what it must never do."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from browser import CHROMIUM, chromium
from odst.classifier.evaluate import assess, own_sets
from odst.classifier.load import load
from odst.data.images import Data
from odst.engine.interface import running_on
from odst.engine.local import Local
from odst.method.labelling import Predictions
from odst.method.selection import select, thresholds
from odst.method.stored import read_logits
from odst.report.comparison import write_comparison
from odst.report.findings import gather
from odst.report.galleries import ladder, scan_round
from odst.report.page import render_report, write_report
from odst.report.plots import Series, nice_ticks, rounds_chart
from odst.report.pool_scan import EDGES, Stops, scan_pool
from odst.report.sprites import Album
from odst.report.templates import Hidden
from odst.report.words import headline, probability, summary
from odst.run.config import parse_config, read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from runs import NAMES, bar_world, config, make_run


@pytest.fixture(scope="module")
def world() -> Data:
    return bar_world()


@pytest.fixture(scope="module")
def run(world: Data, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return make_run(tmp_path_factory.mktemp("runs") / "<i>run", world, config())


@pytest.fixture(scope="module")
def page(run: RunDir, world: Data) -> str:
    return render_report(run, world.pool, images=True, relative_paths=False)


def story(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


class Reader(HTMLParser):
    """What a browser would make of the page: its scripts, its attributes, its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_names_with_tags_quotes_and_emoji_are_shown_as_text(page: str) -> None:
    read = Reader(page)
    for name in NAMES:
        assert name in read.text
    assert read.tags.count("script") == 2
    assert "img" not in read.tags
    assert not [key for key, _ in read.attributes if key.startswith("on")]


def test_values_that_are_all_but_equal_can_be_drawn() -> None:
    assert "svg" in rounds_chart("ECE", [Series("ECE", "c1", [1e-12, 1e-12, 0.0])])


def test_the_page_asks_nothing_of_any_server(page: str) -> None:
    for key, value in Reader(page).attributes:
        if key in ("src", "href", "action", "data", "poster"):
            assert value is not None and value.startswith(("#", "data:"))
    assert not re.findall(r"url\((?!data:)", page)
    assert "default-src 'none'" in page


def test_every_number_of_the_table_is_the_one_in_metrics_jsonl(page: str, run: RunDir) -> None:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    cells = re.findall(r'data-metric="(\w+)" data-round="(\d+)" data-value="([^"]*)">\s*([^<]*)<', page)
    assert len(cells) == 12 * len(lines)
    for key, t, value, text in cells:
        assert json.loads(value) == lines[int(t)][key]
        if key in ("error", "od_auroc", "related") and lines[int(t)][key] is not None:
            assert text == f"{100 * lines[int(t)][key]:.2f}"


def test_the_slider_counts_what_selecting_at_that_alpha_would_take(page: str, run: RunDir, world: Data) -> None:
    told = story(page)["rounds"]["1"]
    found = gather(run, world.pool)
    teacher = found.rounds[0]
    logits = read_logits(run.scratch / "pool-logits-0")[:]
    assert len(told["stops"]["alphas"]) >= 40
    for s in range(0, len(told["stops"]["alphas"]), 7):
        alpha = told["stops"]["alphas"][s]
        tau = thresholds(
            teacher.logits["val_in"], world.val_in.y, teacher.logits["val_out"], teacher.temperature, alpha, alpha
        ).tau
        p = Predictions(logits, teacher.temperature)
        I = select(p, tau, told["k"], excluded=world.pool.excluded, max_copies=1, seed=0, t=0)
        assert [min(told["k"], row["at"][s]) for row in told["classes"]] == np.bincount(I.classes, minlength=3).tolist()
        if len(I):
            assert told["stops"]["related"][s] == pytest.approx((world.pool.truth[I.ids] >= 0).mean())


def test_at_the_runs_own_alpha_the_slider_shows_the_runs_selection(page: str, run: RunDir) -> None:
    for t, told in story(page)["rounds"].items():
        own = told["stops"]["own"]
        rows = json.loads((run.round(int(t)) / "round.json").read_text())["selection"]["classes"]
        assert [row["at"][own] for row in told["classes"]] == [row["above"] for row in rows.values()]
        assert [min(told["k"], row["at"][own]) for row in told["classes"]] == [row["used"] for row in rows.values()]


def test_galleries_lie_on_their_side_of_the_threshold(run: RunDir, world: Data) -> None:
    found = gather(run, world.pool)
    stops, scan = scan_round(found, found.rounds[1], nearest=24)
    tau = stops.tau[stops.own]
    c_all, odds_all = [], []
    p = Predictions(read_logits(run.scratch / "pool-logits-0")[:], found.rounds[0].temperature)
    for _, c, odds in p.top():
        c_all.append(c)
        odds_all.append(odds)
    classes, odds = np.concatenate(c_all), np.concatenate(odds_all)
    kept = np.setdiff1d(np.arange(len(odds)), world.pool.excluded)
    for c in range(3):
        own = kept[classes[kept] == c]
        above, below = np.sort(odds[own[odds[own] > tau[c]]]), np.sort(odds[own[odds[own] <= tau[c]]])[::-1]
        np.testing.assert_array_equal(scan.just_above[c][1], above[:24])
        np.testing.assert_array_equal(scan.just_below[c][1], below[:24])
    assert scan.histogram.sum() == len(kept)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_scan_in_small_blocks_finds_the_same_on_any_number_of_processes(
    run: RunDir, world: Data, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    found = gather(run, world.pool)
    _, scan = scan_round(found, found.rounds[1], nearest=5)
    monkeypatch.setattr("odst.report.pool_scan.BLOCK", 37)
    with running_on(Local(workers)):
        _, again = scan_round(found, found.rounds[1], nearest=5)
    np.testing.assert_array_equal(scan.above, again.above)
    np.testing.assert_array_equal(scan.histogram, again.histogram)
    for one, other in zip(scan.just_above + scan.just_below, again.just_above + again.just_below, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_a_closed_class_shows_its_most_confident_images_as_below() -> None:
    logits = np.array([[3.0, 0], [1, 0], [2, 0], [0, 1]], np.float32)
    tau = np.array([[np.inf, 0.0]])
    scan = scan_pool(
        Predictions(logits, 1.0), Stops(np.array([0.9]), tau, 0), 2, excluded=np.empty(0, int), seed=0, t=0, nearest=2
    )
    assert scan.just_below[0][0].tolist() == [0, 2]
    assert scan.just_above[0][0].tolist() == []
    assert scan.just_above[1][0].tolist() == [3]


def test_no_more_than_24_pictures_a_class_and_gallery(page: str) -> None:
    for told in story(page)["rounds"].values():
        for row in told["classes"]:
            assert all(len(places) <= 24 for places in row.get("rows", {}).values())
            assert all(0 <= place < len(row["tiles"]) for places in row.get("rows", {}).values() for place in places)


def test_excluded_images_are_nowhere_on_the_page(page: str, world: Data) -> None:
    shown = {
        tile["id"]
        for told in story(page)["rounds"].values()
        for row in told["classes"]
        for tile in row.get("tiles", [])
    }
    assert shown
    assert not shown & set(world.pool.excluded.tolist())


def test_without_images_there_is_no_picture_but_the_slider_still_counts(run: RunDir, world: Data) -> None:
    page = render_report(run, world.pool, images=False, relative_paths=False)
    assert "data:image" not in page and "embeds" not in page
    assert story(page)["rounds"]["1"]["classes"][0]["at"]


def test_relative_paths_name_no_place_of_the_machine(run: RunDir, world: Data) -> None:
    page = render_report(run, world.pool, images=True, relative_paths=True)
    assert str(run.path.parent) not in page
    assert "/home/anna" not in page
    tiles = [tile for row in story(page)["rounds"]["1"]["classes"] for tile in row["tiles"]]
    assert tiles and all(tile["src"].startswith("…/<img") for tile in tiles)


def test_hidden_paths_keep_no_folder_above_a_source(tmp_path: Path) -> None:
    hide = Hidden(
        tmp_path / "runs" / "first", ["/home/anna/secret/cats", "../unsorted/web?links=follow", "/data/x.npy", "."]
    )
    assert hide(f"{tmp_path}/runs/first/pool") == "first/pool"
    assert hide(f"{tmp_path}/acme/photos/1.jpg") == "…/1.jpg"
    assert hide("file:///home/anna/secret/cats/tabby/1.jpg") == "…/cats/tabby/1.jpg"
    assert hide("file:///home/anna/unsorted/web/a/1.jpg") == "…/web/a/1.jpg"
    assert hide("file:///home/anna/shard.tar#a/b.jpg") == "…/shard.tar#a/b.jpg"
    assert hide("/data/x.npy") == "…/x.npy"


def test_an_unfinished_run_is_reported_as_such(world: Data, tmp_path: Path) -> None:
    run = make_run(tmp_path / "half", world, config(), rounds=1)
    page = render_report(run, world.pool, images=True, relative_paths=False)
    assert "This run is not finished." in page and "the base of 2 planned rounds" in page


def test_a_run_of_features_has_a_page_without_pictures(tmp_path: Path) -> None:
    from blobs import blob_world

    settings = config(model={"name": "mlp"})
    run = make_run(tmp_path / "features", blob_world(pool=200), settings)
    page = render_report(run, blob_world(pool=200).pool, images=True, relative_paths=False)
    assert "data:image" not in page
    assert "Better than the base" in page or "No clear difference" in page or "Use the base" in page or "Worse" in page


def test_the_summary_names_the_round_and_the_interval(run: RunDir, world: Data) -> None:
    found = gather(run, world.pool)
    text = " ".join([headline(found), *summary(found)])
    assert f"round {found.best.t}" in text or found.best.t == 0
    assert "95 % interval" in text
    metrics = found.rounds[-1].metrics
    assert f"{metrics['selected']:,} pool images" in text


def test_small_numbers_keep_their_digits() -> None:
    assert probability(np.inf) == "closed" and probability(-np.inf) == "none"
    assert probability(0.0) == "50.00 %"
    assert probability(15.0) == "1 \N{MINUS SIGN} 3e\N{MINUS SIGN}7"
    assert probability(800.0).startswith("1")


def test_ticks_are_round_and_enclose_the_data() -> None:
    assert nice_ticks(0, 1) == [0, 0.5, 1] or nice_ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1]
    for low, high in ((3.19, 1.88), (75.9, 99.2), (0.0, 0.0), (5.0, 5.0), (0, 75000)):
        low, high = min(low, high), max(low, high)
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low <= high <= ticks[-1]
        assert 2 <= len(ticks) <= 7


def test_a_ladder_has_a_rung_between_any_two_counts_and_stays_short() -> None:
    counts = np.array([0, 0, 10, 500, 500, 4000])
    ranks = ladder(counts, 48)
    assert len(ranks) <= 48
    for low, high in ((0, 10), (10, 500), (500, 4000)):
        assert ((ranks >= low) & (ranks < high)).any()
    assert ladder(np.array([5, 5]), 48).tolist() == []


def test_large_images_become_small_tiles_of_the_same_shape() -> None:
    album = Album((200, 100, 3))
    assert album.size == (24, 48)
    x = np.zeros((3, 200, 100, 3), np.uint8)
    assert album.add(x, [0, 2]) == 0
    assert album.sheets[0].startswith("data:image/")


def test_the_histogram_keeps_what_lies_beyond_its_ends() -> None:
    from odst.report.pool_scan import histogram_of

    assert histogram_of(np.array([-50.0, EDGES[0], 0.0, 99.0])).sum() == 4


# in a browser ----------------------------------------------------------------------------------------------------------------


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

PICTURES = """(async () => {
  const urls = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
    .map(rule => rule.style && rule.style.backgroundImage).filter(text => text && text.startsWith('url("data:image'));
  const sizes = [];
  for (const url of urls) { const image = new Image(); image.src = url.slice(5, -2); await image.decode(); sizes.push(image.naturalWidth); }
  return sizes;
})()"""
COUNTS = "[...document.querySelectorAll('#alpha-rows .n')].map(one => one.textContent)"


@needs_chromium
def test_in_a_browser_the_page_works_and_asks_for_nothing(page: str, run: RunDir, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    with chromium(tmp_path / "profile") as tab:
        tab.view(1280, 900)
        tab.open(file)
        check_page(tab, run)
        told = story(page)
        tab.run("document.querySelector('input[name=student][value=\"1\"]').click()")
        names = tab.run("[...document.querySelectorAll('#alpha-rows .name')].map(one => one.textContent)")
        assert names == list(NAMES)
        tab.run(
            "document.getElementById('alpha').value = 0; document.getElementById('alpha').dispatchEvent(new Event('input'))"
        )
        first = told["rounds"]["1"]
        assert tab.run(COUNTS) == [f"{min(first['k'], row['at'][0]):,}" for row in first["classes"]]
        # by keyboard: a row of pictures is one stop, arrows walk, Enter shows one large, Escape closes
        tab.run("document.querySelector('#galleries .tiles button').focus()")
        tab.key("ArrowRight")
        assert tab.run("document.activeElement === document.querySelectorAll('#galleries .tiles')[0].children[1]")
        tab.run("document.activeElement.click()")
        assert tab.run("document.getElementById('large').open")
        assert "%3Cimg" in tab.run("document.querySelector('#large dl').textContent")
        for width in (390, 768):
            tab.view(width, 844, mobile=True)
            assert tab.run("document.documentElement.scrollWidth") <= width
        assert tab.faults == []
        assert {url for url in tab.requests if not url.startswith("data:")} == {file.absolute().as_uri()}


@needs_chromium
@pytest.mark.slow
def test_the_pages_of_the_demo_work_in_a_browser(tmp_path: Path) -> None:
    steps = {"training.phases": [{"lr": 0.1, "steps": 20}], "run.device": "cpu"}
    runs = []
    for method in ("odst", "st"):
        execute(read_config("digits", steps | {"method.name": method}), tmp_path / method)
        runs.append(RunDir(tmp_path / method))
    report, comparison = write_report(runs[0], tmp_path / "r.html"), write_comparison(runs, tmp_path / "c.html")
    with chromium(tmp_path / "profile") as tab:
        tab.view(1280, 900, dark=True)
        tab.open(report)
        check_page(tab, runs[0])
        tab.open(comparison)
        assert tab.run("document.querySelectorAll('#galleries .tile').length") > 0
        assert tab.run(PICTURES)
        told = story(comparison.read_text(encoding="utf-8"))
        first = next(iter(told["rounds"]))
        tab.run(f"document.querySelector('input[name=round][value=\"{first}\"]').click()")
        text = tab.run("document.getElementById('galleries').textContent")
        assert all(f"{one['run']}: {one['count']} of {one['of']} images" in text for one in told["rounds"][first])
        assert tab.faults == []
        assert {Path(url).name for url in tab.requests if not url.startswith("data:")} == {"r.html", "c.html"}
    assert report.stat().st_size < 10e6 and comparison.stat().st_size < 10e6
    check_use(runs[0])


def check_use(run: RunDir) -> None:
    """A run with sets of its own: its test error, and its thresholds at its own alpha, come out again."""
    classifier = load(run.path, device="cpu")
    _, logits, y, outs = own_sets(classifier)
    found = assess(classifier, logits, y, outs)
    metrics = run.metrics()[classifier.round]
    assert found["error"] == metrics["error"] and found["od_auroc"] == pytest.approx(metrics["od_auroc"])
    alpha = run.config().recipe().alpha
    np.testing.assert_array_equal(classifier.at(alpha).tau, classifier.tau)
    assert (classifier.at(0.5).tau <= classifier.tau).all()


@needs_chromium
@pytest.mark.slow
def test_the_page_of_a_cifar_run_without_a_test_set_works_in_a_browser(real_data: Path, tmp_path: Path) -> None:
    settings = parse_config(
        {
            "data": {
                "labelled": f"{real_data}/cifar10_train.parquet?split=val_in",
                "pool": f"{real_data}/cifar10_test.parquet",
                "val_out": f"{real_data}/flowers.parquet",
            },
            "method": {"name": "odst", "alpha": 0.9, "ratio": [1]},
            "model": {"name": "tiny"},
            "training": {"phases": [{"lr": 0.1, "steps": 40}]},
            "run": {"device": "cpu"},
        },
        "cifar",
    )
    execute(settings, tmp_path / "run")
    page = write_report(RunDir(tmp_path / "run"), tmp_path / "r.html", relative_paths=True)
    assert page.stat().st_size < 10e6
    assert str(real_data) not in page.read_text(encoding="utf-8")
    with chromium(tmp_path / "profile") as tab:
        tab.view(390, 844, mobile=True)
        tab.open(page)
        check_page(tab, RunDir(tmp_path / "run"))
        assert tab.faults == []
        assert [url for url in tab.requests if not url.startswith("data:")] == [page.absolute().as_uri()]


def check_page(tab, run: RunDir) -> None:  # type: ignore[no-untyped-def]
    """What holds for the page of any run: pictures decode, the slider counts, the numbers are those of the run."""
    sizes = tab.run(PICTURES)
    assert sizes and all(size > 0 for size in sizes)
    at_first = tab.run(COUNTS)
    last = json.loads((run.path / "final.json").read_text())["round"] or run.rounds()[-1]
    rows = json.loads((run.round(last) / "round.json").read_text())["selection"]["classes"].values()
    assert at_first == [f"{row['used']:,}" for row in rows]
    tab.run(
        "document.getElementById('alpha').value = 40; document.getElementById('alpha').dispatchEvent(new Event('input'))"
    )
    assert tab.run(COUNTS) != at_first, "at the strictest alpha a class takes as many as at the run's own"
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    shown = tab.run(
        "[...document.querySelectorAll('td[data-metric]')].map(td => [td.dataset.metric, td.dataset.round, td.dataset.value, td.textContent])"
    )
    for key, t, value, text in shown:
        assert json.loads(value) == lines[int(t)][key]
        if key == "error" and value != "null":
            assert text.strip() == f"{100 * lines[int(t)][key]:.2f}"
