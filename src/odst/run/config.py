"""A config: TOML with the sections data, method, model, training and run, checked key by key."""

import difflib
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from odst.data.sets import DataSection
from odst.errors import UserError
from odst.recipe import METHODS, Recipe, check_weight
from odst.training.schedule import Schedule

CONFIG_FILE = "config.toml"  # in a run directory
LEARNT = "learnt"  # in a run, the folder of the marks that it learns from
FORECAST_FILE = "forecast.json"  # there too, whether the run has begun or not
PRESETS = Path(__file__).parent.parent / "presets"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def differing(of: type, *, without: Sequence[str] = (), **others: Any) -> type[Section]:
    """A section that may name any field of a frozen dataclass, beside `others`; what it does not name is None."""
    named = {f.name: (f.type | None, None) for f in fields(of) if f.name not in without}  # type: ignore[operator]
    return create_model(of.__name__, __base__=Section, **others, **named)  # type: ignore[call-overload]


class MethodSection(
    differing(  # type: ignore[misc]
        Recipe,
        without=("closed_world", "given_selection", "rest_weight"),
        name=(str, "odst"),
        rest_weight=(float | str | None, None),  # the recipe knows which text
    )
):
    """A named recipe and what differs from it. `ratio` and `k` are those of the full run: one-shot takes their last entry,
    supervised and oe none. rest_weight = "auto" is for methods that learn from the rest: st keeps its 0."""

    @field_validator("rest_weight", mode="before")
    @classmethod
    def _weight(cls, weight: Any) -> Any:
        if weight is not None:
            check_weight(weight)  # before a list or true is taken for a number
        return weight


class StudentSection(differing(Schedule)):  # type: ignore[misc]
    """What differs for one student; the first entry is round 1, the last one serves all later rounds."""


@dataclass(frozen=True, kw_only=True)
class TrainingSection(Schedule):
    """The schedule of the base, and what differs for the students."""

    students: tuple[StudentSection, ...] = ()  # what differs for student 1, 2, …; the last serves all later ones


class ModelSection(Section):
    """A network of its own, or one that begins with what another has learnt."""

    name: str = "small"  # tiny, small, resnet50, …, mlp and head for vectors, timm:NAME, or package.module:factory
    pretrained: bool = False  # timm:NAME and the packaged backbones begin with their published weights
    weights: str | None = None  # a state dict to begin with: .safetensors, or .pth of plain tensors
    freeze: Literal["none", "backbone"] = "none"  # backbone: only the last layer learns
    backbone: str | None = None  # a spec of docs/embeddings.md: the network sees its vectors, people see pictures

    @model_validator(mode="after")
    def _learnt(self) -> "ModelSection":
        if self.pretrained and self.weights:
            raise ValueError("pretrained takes the published weights and weights takes a file: leave one out")
        if self.backbone and (self.pretrained or self.weights):
            raise ValueError("with a backbone the network sees vectors and is new: leave pretrained and weights out")
        if self.freeze == "backbone" and not (self.pretrained or self.weights):
            raise ValueError("freeze keeps what was learnt, and nothing was: set pretrained = true or weights = FILE")
        return self

    def located(self, base: Path) -> "ModelSection":
        """With every path that lies beside the config made absolute."""
        place = {"weights": self.weights and str(base / self.weights), "backbone": self.backbone}
        kind, _, rest = (self.backbone or "").partition(":")
        if kind in ("onnx", "torch") or (kind == "hf" and (base / rest.partition("@")[0]).is_dir()):
            place["backbone"] = f"{kind}:{base / rest}"
        elif kind == "timm" and "#" in rest:
            name, _, file = rest.partition("#")
            place["backbone"] = f"{kind}:{name}#{base / file}"
        return self.model_copy(update=place)

    def network(self) -> dict[str, Any]:
        """What `make_network` is told."""
        return {key: value for key, value in self if key != "backbone"}


class RunSection(Section):
    """Where and how one run goes."""

    seed: Annotated[int, Field(ge=0)] = 0  # deals splits, order, augmentation and ties
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto: a GPU where there is one
    stop_on_harm: bool = False  # end at the first student that is worse than its teacher
    labels_alone: bool = False  # train a model on the labelled images alone too, and use it where it is the better one
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30  # between two saves of a training in progress


class Config(Section):
    data: DataSection
    method: MethodSection = MethodSection()
    model: ModelSection = ModelSection()
    training: TrainingSection
    run: RunSection = RunSection()

    def recipe(self) -> Recipe:
        name = self.method.name
        if name not in METHODS:
            raise UserError(f"method: {name!r} is not one of {', '.join(METHODS)}.{_nearest(name, METHODS)}")
        named = METHODS[name][0]
        changes = _named(self.method)
        del changes["name"]
        for key in changes.keys() & {"ratio", "k"}:
            changes[key] = named.of_full_run(changes[key])
        if changes.get("k") == ():
            del changes["k"]
        if named.rest_weight == 0 and changes.get("rest_weight") == "auto":
            del changes["rest_weight"]
        return replace(named, **changes)

    def schedules(self) -> list[Schedule]:
        base = Schedule(**{f.name: getattr(self.training, f.name) for f in fields(Schedule)})
        return [base, *(replace(base, **_named(student)) for student in self.training.students)]


def _named(section: Section) -> dict[str, Any]:
    return {key: value for key, value in section if value is not None}


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_config(name: str, changes: dict[str, Any]) -> Config:
    """A config file, a preset's name, or a run directory, with `section.key` changes applied."""
    path = Path(name)
    if name in presets() and not (path / CONFIG_FILE).is_file():  # a folder may have the name of a preset
        path = PRESETS / f"{name}.toml"
    elif path.is_dir():
        path = path / CONFIG_FILE
        if not path.is_file():
            raise UserError(
                f"{name}: this folder is no run directory: there is no {CONFIG_FILE} in it. Give a config, a preset or a run."
            )
    elif not path.suffix and not path.exists():
        raise UserError(
            f"{name}: neither a file nor a preset. Presets: {', '.join(presets())}.{_nearest(name, presets())}"
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{name}: there is no such config. Give a TOML file, a preset ({', '.join(presets())}) or a run."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{name}: brackets inside brackets, deeper than any config. Mend it.") from None
    for key, value in changes.items():
        _put(values, key, value)
    config = parse_config(values, str(name))
    base = path.resolve().parent
    return config.model_copy(update={"data": config.data.located(base), "model": config.model.located(base)})


def run_folder(name: str, config: Config, out: Path | None) -> Path:
    """Where the run of a config goes: where it is told to, into the run directory that it was read from, or below runs/."""
    if out is not None:
        return out
    if (Path(name) / CONFIG_FILE).is_file():
        return Path(name)
    return Path("runs") / f"{Path(name).stem}-{config.method.name}-{config.run.seed}"


def parse_config(values: dict[str, Any], name: str) -> Config:
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        raise (cause if isinstance(cause, UserError) else UserError(f"{name}: {_explain(error)}")) from None
    config.recipe()
    config.schedules()
    return config


def parse_change(text: str) -> tuple[str, Any]:
    """`section.key=value` of --set; the value is TOML, or plain text."""
    key, sign, value = text.partition("=")
    if not sign or "." not in key:
        raise UserError(f"--set takes section.key=value, got {text!r}. For example: --set method.alpha=0.98")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
    except RecursionError:
        raise UserError(f"--set {key}: brackets inside brackets, deeper than any value. Mend it.") from None


def dump_config(config: Config, home: Path | None = None) -> str:
    """The resolved config as TOML: every key that has a value. Marks that lie in `home`, its folder, are named from there."""
    values = config.model_dump(mode="json", exclude_none=True)
    if home is not None and values["data"].get("marks"):
        own = [Path(file) for file in files_of(config.data.marks)]
        here = home.resolve()
        values["data"]["marks"] = [str(one.relative_to(here) if one.is_relative_to(here) else one) for one in own]
    return tomli_w.dumps(values)


def files_of(sources: str | Sequence[str]) -> tuple[str, ...]:
    return (sources,) if isinstance(sources, str) else tuple(sources)


def differing_keys(a: Config, b: Config) -> list[str]:
    """`section.key` of what two configs do not share; how often a run saves its state is nobody's business but its own."""
    one, other = _flat(a.model_dump(mode="json")), _flat(b.model_dump(mode="json"))
    ignored = {"run.checkpoint_seconds"}
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key) and key not in ignored)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise UserError(f"--set {key}: {section} is a value, not a section.")
    values[last] = value


def _explain(error: ValidationError) -> str:
    """The first fault of a config in one line, an unknown key with its nearest valid name."""
    fault = error.errors()[0]
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):  # of a section, of a dataclass
        valid = _keys_beside(fault["loc"])
        return f"unknown key {place}.{_nearest(str(fault['loc'][-1]), valid)} Valid here: {', '.join(valid)}."
    if fault["type"] == "missing":
        return f"the key {place} is missing. Add it; `odst init` writes a complete config."
    if isinstance(fault["loc"][-1], str) and not _keys_beside(fault["loc"]):
        place = place.rpartition(".")[0]  # of a key that may be one of several kinds, the last part is the kind's name
    message = fault["msg"].removeprefix("Value error, ")
    given = "" if isinstance(fault["input"], dict) else f", got {fault['input']!r}"
    return f"{place}: {message[0].lower()}{message[1:]}{given}."


def _keys_beside(place: tuple[int | str, ...]) -> list[str]:
    keys = _keys(Config)
    for part in place[:-1]:
        keys = _keys(keys.get(part)) if isinstance(part, str) else keys
    return list(keys)


def _keys(kind: Any) -> dict[str, Any]:
    """The keys of a section and their types; of a tuple or a choice, those of the first section in it."""
    if is_dataclass(kind):
        return {f.name: f.type for f in fields(kind)}
    if hasattr(kind, "model_fields"):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return next(filter(None, map(_keys, getattr(kind, "__args__", ()))), {})


def _nearest(name: str, valid: Any) -> str:
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def recipe_changes(recipe: Recipe) -> dict[str, Any]:
    """What a recipe changes against ODST."""
    default = asdict(Recipe())
    return {name: value for name, value in asdict(recipe).items() if value != default[name]}
