"""The paper's experiments by name: what their schedules say, and that each runs on files of the true formats."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from commands import odst
from odst import METHODS
from odst.data.formats.originals import CIFAR10
from odst.data.named.catalogue import CATALOGUE
from odst.errors import UserError
from odst.run.config import PRESETS, Config, presets, read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.preparation import prepare
from odst.seeds import stream
from odst.training.schedule import Plan
from test_formats import cifar10_python, dump, planes

PAPER = ["cifar10-pyramidnet272", "cifar10-resnet50", "cifar100-pyramidnet272", "cifar100-resnet50", "svhn-resnet50"]
CIFAR100 = sorted({"bus", "pickup_truck", *(f"thing{k:02d}" for k in range(98))})


def pictures(n: int) -> np.ndarray:
    return stream(n, "pictures").integers(256, size=(n, 32, 32, 3), dtype=np.uint8)


def cifar100(folder: Path, name: str, fine: np.ndarray) -> None:
    dump(folder / "cifar-100-python" / name, {"fine_labels": fine.tolist(), "data": planes(pictures(len(fine)))})


@pytest.fixture(scope="module", autouse=True)
def made_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every set of the three experiments, a few images each."""
    folder = tmp_path_factory.mktemp("sets")
    cifar10_python(folder / "cifar-10-batches-py", pictures(20), np.arange(20) % 10)
    cifar100(folder, "train", np.arange(5100) % 100)
    cifar100(folder, "test", np.arange(100))
    dump(folder / "cifar-100-python" / "meta", {"fine_label_names": CIFAR100})
    np.save(folder / "cifar10.1_v6_data.npy", pictures(10))
    np.save(folder / "cifar10.1_v6_labels.npy", np.arange(10, dtype=np.int32))
    for split, n in (("train", 20), ("test", 10), ("extra", 10_030)):
        y = (np.arange(n) % 10 + 1)[:, None].astype(np.uint8)
        savemat(folder / f"{split}_32x32.mat", {"X": pictures(n).transpose(1, 2, 3, 0), "y": y})
    for name in ("lsun-cr-32", "flowers102-test-32", "food101-test-32", "fgvc-aircraft-test-32"):
        np.save(folder / f"{name}.npy", pictures(3))
    (folder / "tiny_images.bin").write_bytes(b"".join(image.tobytes(order="F") for image in pictures(60)))
    (folder / "80mn_cifar_idxs.txt").write_text("1\n")
    return folder


@pytest.fixture(autouse=True)
def _found(made_sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODST_DATA", str(made_sets))


def shortened(preset: str, network: str, **changes: object) -> Config:
    """The preset with a step or two in each phase; thresholds that hardly trained networks can pass."""
    whole = read_config(preset, {})
    phases = [{"steps": 1, "lr": phase.lr, "augment": list(phase.augment)} for phase in whole.training.phases]
    students = [
        {"phases": [{"steps": 1, "lr": phase.lr, "augment": list(phase.augment)} for phase in student.phases or ()]}
        for student in whole.training.students
    ]
    short = {"training.phases": phases, "training.students": students, "training.batch": 2, "model.name": network}
    short |= {"method.in_threshold": False, "method.alpha_out": 0.02, "method.calibrate": "none", "run.device": "cpu"}
    if whole.method.k is not None:
        short["method.k"] = [1, 2, 3]
    return read_config(preset, short | {name.replace("__", "."): value for name, value in changes.items()})


def phases(plan: Plan) -> list[tuple[float | None, float, str, tuple[str, ...]]]:
    return [(phase.epochs, phase.lr, phase.shape, phase.augment) for phase in plan.phases]


# what they say

FULL, PLAIN = ("crop:4", "flip", "autoaugment:cifar10", "cutout:16"), ("crop:4", "flip")


@pytest.mark.parametrize("task", ["cifar10", "cifar100", "svhn"])
def test_resnet50_takes_250_epochs_from_scratch_in_every_round(task: str) -> None:
    config = read_config(f"{task}-resnet50", {})
    augment = ("crop:4", "autoaugment:svhn", "cutout:16") if task == "svhn" else FULL
    (schedule,) = config.schedules()
    assert phases(schedule.plan(50_000)) == [
        (epochs, lr, "constant", augment) for epochs, lr in ((100, 0.1), (50, 0.01), (50, 0.001), (50, 0.0001))
    ]
    assert (schedule.batch, schedule.weight_decay, schedule.momentum) == (128, 5e-4, 0.9)
    assert not config.recipe().warm_start


@pytest.mark.parametrize("task", ["cifar10", "cifar100"])
def test_pyramidnet_is_fine_tuned_with_a_warm_restart_and_judged_after_it(task: str) -> None:
    config = read_config(f"{task}-pyramidnet272", {})
    base, *students = config.schedules()
    assert config.recipe().warm_start
    assert phases(base.plan(50_000)) == [(1000, 0.05, "cosine", FULL)]
    for N, schedule in zip((50, 40, 30), students, strict=True):
        assert (schedule.batch, schedule.weight_decay) == (64, 1e-4)
        plan = schedule.plan(64_000)
        assert phases(plan) == [(N, 0.05, "cosine", FULL), (55 - N, 0.01, "cosine", PLAIN)]
        assert plan.at(1000 * N - 1)[1] == pytest.approx(0, abs=1e-6)
        assert plan.at(1000 * N)[1] == 0.01
        assert [check / 1000 for check in plan.checks()] == list(range(max(N, 44) + 1, 56))


@pytest.mark.parametrize(
    ("preset", "n", "K", "k", "alpha"),
    [
        ("cifar10-resnet50", 50_000, 10, (25_000, 50_000, 75_000), 0.998),
        ("cifar100-resnet50", 45_000, 100, (2_250, 4_500, 6_750), 0.98),
        ("svhn-resnet50", 73_257, 10, (25_000, 50_000, 75_000), 0.998),
    ],
)
def test_each_class_may_take_what_the_paper_lets_it(
    preset: str, n: int, K: int, k: tuple[int, ...], alpha: float
) -> None:
    recipe = read_config(preset, {}).recipe()
    assert tuple(recipe.per_class(t, n, K) for t in range(recipe.rounds)) == k
    assert recipe.alpha == alpha


@pytest.mark.parametrize("preset", PAPER)
def test_a_preset_states_its_command_hardware_time_and_the_papers_numbers(preset: str) -> None:
    text = (PRESETS / f"{preset}.toml").read_text()
    for word in (f"odst run {preset}", "# Hardware:  one GPU", "# Time: ", "odst data get", "The paper's numbers"):
        assert word in text
    best = {"cifar10-resnet50": "1.88", "cifar10-pyramidnet272": "1.31", "svhn-resnet50": "1.36"}
    assert (best | {"cifar100-resnet50": "14.86", "cifar100-pyramidnet272": "11.17"})[preset] in text


@pytest.mark.parametrize("preset", PAPER)
def test_the_tutorial_says_of_a_preset_what_it_says_itself(preset: str) -> None:
    text = (PRESETS / f"{preset}.toml").read_text()
    days = re.search(r"# Time: +(about \d days) on one A100", text)[1]
    half, full = re.search(r"one GPU with (\d+) GB \(bfloat16\) or (\d+) GB \(float32\)", text).groups()
    names = re.search(r"# Data: +odst data get (.*)", text)[1].split()
    fetched = sum(file.bytes for name in names for file in CATALOGUE[name].files) / 1e9
    page = (Path(__file__).parent.parent / "docs" / "tutorials" / "paper.md").read_text(encoding="utf-8")
    assert f"| `{preset}` | {days} | {half} or {full} GB | {fetched:.1f} GB |" in page
    assert f"another {sum(file.bytes for file in CATALOGUE['300k-random'].files) / 1e9:.1f} GB" in page


def test_the_papers_experiments_are_presets() -> None:
    assert set(PAPER) <= set(presets())


# that they run


@pytest.mark.parametrize(
    "preset", [name if name.startswith("cifar10-") else pytest.param(name, marks=pytest.mark.slow) for name in PAPER]
)
def test_every_preset_runs_on_files_of_the_true_formats(preset: str, tmp_path: Path) -> None:
    task = preset.partition("-")[0]
    fewer: dict[str, object] = {"cifar10": {}, "cifar100": {"method__ratio": [5]}, "svhn": {"method__k": [2]}}[task]
    execute(shortened(preset, "tiny", **fewer), tmp_path / "run")
    run = RunDir(tmp_path / "run")
    assert run.rounds() == ([0, 1] if fewer else [0, 1, 2, 3])
    outs = {"cifar10": 5, "cifar100": 4, "svhn": 0}[task]
    assert sum(name.startswith("out_test.") for name in run.info()["sets"]) == outs


@pytest.mark.slow
def test_every_method_runs_with_the_small_network_on_the_papers_data(
    made_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = shutil.copytree(made_sets, tmp_path / "sets", ignore=shutil.ignore_patterns("extra_32x32.mat"))
    cifar100(sets, "train", np.arange(8))  # val_out: the network sees it in every round of every method
    monkeypatch.setenv("ODST_DATA", str(sets))
    for method, (recipe, _) in METHODS.items():
        changes: dict[str, object] = {"method__name": method, "method__ratio": [1, 1, 1]}
        if method == "st-cw":
            with pytest.raises(
                UserError, match=r"st-cw: it needs a pool of task images only.*data\.closed_pool = true"
            ):
                execute(shortened("cifar10-resnet50", "small", **changes), tmp_path / method)
            changes["data__closed_pool"] = True
        if method == "given-selection":
            with pytest.raises(UserError, match=r"selection: this method takes.*Set data\.selection"):
                execute(shortened("cifar10-resnet50", "small", **changes), tmp_path / method)
            changes["data__selection"] = str(tmp_path / "odst" / "round-1" / "selection.parquet")
        execute(shortened("cifar10-resnet50", "small", **changes), tmp_path / method)
        assert len(RunDir(tmp_path / method).rounds()) == 1 + recipe.rounds, method


@pytest.mark.slow
def test_the_closed_world_of_svhn_is_its_extra_digits(tmp_path: Path) -> None:
    execute(shortened("svhn-resnet50", "tiny", method__name="st-cw", method__k=[1]), tmp_path / "run")
    run = RunDir(tmp_path / "run")
    assert run.rounds() == [0, 1]
    sets = run.info()["sets"]
    assert sets["pool"]["images"] - sets["pool"]["excluded"] == 30


def test_missing_sets_are_named_with_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODST_DATA", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"odst data get cifar10 cifar10\.1 cifar100"):
        execute(read_config("cifar10-resnet50", {}), tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_supervised_asks_for_no_pool(made_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = shutil.ignore_patterns("tiny_images.bin", "extra_32x32.mat")
    monkeypatch.setenv("ODST_DATA", str(shutil.copytree(made_sets, tmp_path / "sets", ignore=without)))
    assert prepare(shortened("cifar10-resnet50", "tiny", method__name="supervised"), None).data.pool is None
    with pytest.raises(UserError, match="tiny-images"):
        prepare(shortened("cifar10-resnet50", "tiny", method__name="oe"), None)


def test_the_bound_of_svhn_is_the_preset_with_the_labels_of_the_extra_digits(tmp_path: Path) -> None:
    text = (PRESETS / "svhn-resnet50.toml").read_text()
    says = re.search(r'\[data\] say (labelled = .+?), (val_in = .+?), (test = "[^"]+")', text)
    assert says is not None
    before, after = text.index("\n[data]\n"), text.index("[method]")
    copy = "\n".join([text[:before], "[data]", *says.groups(), text[after:]])
    (tmp_path / "bound.toml").write_text(copy)
    short = {
        "training.phases": [{"steps": 1, "lr": 0.1}],
        "training.batch": 2,
        "model.name": "tiny",
        "run.device": "cpu",
    }
    data = prepare(read_config(tmp_path / "bound.toml", short | {"method.name": "supervised"}), None).data
    assert (len(data.labelled), len(data.val_in), data.pool) == (9850, 200, None)
    assert data.test is not None and len(data.test) == 10 and data.classes == tuple("0123456789")


@pytest.mark.parametrize(("preset", "leaves"), [("cifar10-pyramidnet272", [0, 7, 8]), ("cifar100-resnet50", [0, 8])])
def test_a_packed_and_guarded_pool_takes_the_place_of_tiny_images(
    preset: str, leaves: list[int], made_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands of the preset: what the list names leaves (its 1 is the first image), and what is in the test sets."""
    sets = shutil.copytree(made_sets, tmp_path / "sets", ignore=shutil.ignore_patterns("extra_32x32.mat"))
    tiny = pictures(60)
    tiny[7], tiny[8] = pictures(10)[3], pictures(100)[5]  # of CIFAR-10.1 and of CIFAR-100's test set
    (sets / "tiny_images.bin").write_bytes(b"".join(image.tobytes(order="F") for image in tiny))
    monkeypatch.setenv("ODST_DATA", str(sets))
    monkeypatch.chdir(sets)
    text = (PRESETS / f"{preset}.toml").read_text()
    for command in re.findall(r"^# +odst ((?:pool build|dedup) .+)$", text, re.MULTILINE):
        assert odst(*command.split()).code == 0
    pool = prepare(shortened(preset, "tiny", data__pool="POOL"), None).data.pool
    assert pool is not None and len(pool) == 60
    assert pool.excluded.tolist() == leaves


@pytest.mark.slow
def test_pyramidnet_takes_a_step_of_two_and_two_with_odst(
    made_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = shutil.copytree(made_sets, tmp_path / "sets", ignore=shutil.ignore_patterns("extra_32x32.mat"))
    cifar100(sets, "train", np.arange(8))
    (sets / "tiny_images.bin").write_bytes(pictures(6).tobytes())
    monkeypatch.setenv("ODST_DATA", str(sets))
    execute(
        shortened("cifar10-pyramidnet272", "pyramidnet272", method__ratio=[1], data__out_test={"lsun-cr": "lsun-cr"}),
        tmp_path / "run",
    )
    assert RunDir(tmp_path / "run").rounds() == [0, 1]
    assert tuple(RunDir(tmp_path / "run").info()["classes"]) == CIFAR10
