"""AutoAugment and Cutout on batches of 512 images of 32×32, against Pillow's operations and kornia's AutoAugment.

    python -m benchmarks.augmentation [--quick]

Two torch threads against two processes of Pillow or of kornia. Pillow draws nothing in the timed part and gets the same
draws as odst: the images that come out are compared level by level. Its images lie ready as Pillow images ("operations"),
or come from arrays and go back to arrays as in a data loader. kornia draws one sub-policy for all it is given, so one per
image, as AutoAugment is defined, needs batches of one: this is the anchor. Its batches of 512 that share a sub-policy are
another, lesser augmentation and stand beside it. kornia's times are without Cutout.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_images

from odst.vision.augmentation import augmenter
from odst.vision.autoaugment import AutoAugment
from odst.vision.operations import NAMES, NOTHING

BATCH, SIDE, CUT = 512, 32, 16
FILL = (125, 123, 114)
THREADS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of half a second each instead of three")
    quick = parser.parse_args().quick
    rounds, seconds = (1, 0.5) if quick else (3, 1.5)
    torch.set_num_threads(THREADS)
    images = patches()
    for policy in ("cifar10", "svhn", "imagenet"):
        same_as_pillow(images, policy)

    def ours(policy: str) -> Callable[[], int]:
        augment, generator = augmenter([f"autoaugment:{policy}", f"cutout:{CUT}"], FILL), torch.Generator()
        batch = torch.from_numpy(images).permute(0, 3, 1, 2)
        return lambda: len(augment(batch, generator))

    with Workers(images) as others:
        measures: dict[str, Callable[[], float]] = {
            "odst": lambda: rate(ours("cifar10"), seconds),
            "Pillow, operations": lambda: others.rate("operations", "cifar10", seconds),
            "Pillow, arrays in and out": lambda: others.rate("arrays", "cifar10", seconds),
            "kornia, a sub-policy per image": lambda: others.rate("kornia", "cifar10", seconds),
            "kornia, one for all 512": lambda: others.rate("kornia, batch", "cifar10", seconds),
            "odst, svhn": lambda: rate(ours("svhn"), seconds),
            "Pillow, operations, svhn": lambda: others.rate("operations", "svhn", seconds),
            "odst, imagenet": lambda: rate(ours("imagenet"), seconds),
            "Pillow, operations, imagenet": lambda: others.rate("operations", "imagenet", seconds),
        }
        measured = [{name: measure() for name, measure in measures.items()} for _ in range(rounds)]
    table = {name: statistics.median(one[name] for one in measured) for name in measures}

    print(f"{'':<32}{'images/s':>10}{'odst is':>10}")
    for name, value in table.items():
        policy = name.rpartition(", ")[2] if name.endswith(("svhn", "imagenet")) else ""
        print(f"{name:<32}{value:>10.0f}{table[f'odst, {policy}' if policy else 'odst'] / value:>9.1f}×")
    for anchor in ("kornia, a sub-policy per image", "Pillow, operations"):
        print(f"augmentation ratio={table['odst'] / table[anchor]:.2f} anchor={table[anchor]:.0f} images/s ({anchor})")


def patches() -> np.ndarray:
    """512 squares of two photographs, (512, 32, 32, 3)."""
    cut = []
    for image in load_sample_images().images:
        rows, columns = image.shape[0] // SIDE, image.shape[1] // SIDE
        grid = image[: rows * SIDE, : columns * SIDE].reshape(rows, SIDE, columns, SIDE, 3)
        cut.append(grid.transpose(0, 2, 1, 3, 4).reshape(-1, SIDE, SIDE, 3))
    return np.ascontiguousarray(np.concatenate(cut)[:BATCH])


def rate(call: Callable[[], int], seconds: float) -> float:
    """Images per second; `call` returns how many it has done."""
    call()
    done, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        done += call()
    return done / passed


def draws(policy: str, seed: int) -> tuple[list[list[int]], list[list[float]], list[list[int]]]:
    """What augmenter(["autoaugment:POLICY", "cutout:16"]) draws from a generator with this seed."""
    generator = torch.Generator().manual_seed(seed)
    code, magnitude = AutoAugment(policy).draw(BATCH, SIDE, SIDE, generator)
    corner = torch.cat([torch.randint(SIDE, (BATCH, 1), generator=generator) for _ in range(2)], 1) - CUT // 2
    return code.tolist(), magnitude.tolist(), corner.tolist()


def with_pillow(name: str, image: Image.Image, value: float) -> Image.Image:
    def warped(*matrix: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=FILL)

    match name:
        case "ShearX":
            return warped(1, value, 0, 0, 1, 0)
        case "ShearY":
            return warped(1, 0, 0, value, 1, 0)
        case "TranslateX":
            return warped(1, 0, value, 0, 1, 0)
        case "TranslateY":
            return warped(1, 0, 0, 0, 1, value)
        case "Rotate":
            return image.rotate(value, fillcolor=FILL)
        case "Invert":
            return ImageOps.invert(image)
        case "AutoContrast":
            return ImageOps.autocontrast(image)
        case "Equalize":
            return ImageOps.equalize(image)
        case "Solarize":
            return ImageOps.solarize(image, value)  # type: ignore[arg-type]
        case "Posterize":
            return ImageOps.posterize(image, int(value))
    return getattr(ImageEnhance, name)(image).enhance(value)


def augmented(image: Image.Image, codes: Sequence[int], values: Sequence[float], corner: Sequence[int]) -> Image.Image:
    out = image
    for code, value in zip(codes, values, strict=True):
        if code != NOTHING:
            out = with_pillow(NAMES[code], out, value)
    if out is image:
        out = image.copy()
    top, left = corner
    out.paste(FILL, (max(left, 0), max(top, 0), min(left + CUT, SIDE), min(top + CUT, SIDE)))
    return out


def same_as_pillow(images: np.ndarray, policy: str) -> None:
    augment = augmenter([f"autoaugment:{policy}", f"cutout:{CUT}"], FILL)
    batch = torch.from_numpy(images).permute(0, 3, 1, 2)
    ours = augment(batch, torch.Generator().manual_seed(7)).permute(0, 2, 3, 1).numpy()
    theirs = np.stack(
        [
            np.asarray(augmented(Image.fromarray(image), *drawn))
            for image, *drawn in zip(images, *draws(policy, 7), strict=True)
        ]
    )
    differ = int((ours != theirs).sum())
    print(f"{policy}: {differ} of {ours.size} levels differ from Pillow's")
    assert not differ


class Workers:
    """Two processes that augment in the named way for as long as they are told and say how many images they did."""

    def __init__(self, images: np.ndarray):
        context = get_context("spawn")
        pipes = [context.Pipe() for _ in range(THREADS)]
        self.ends = [ours for ours, _ in pipes]
        self.processes = [
            context.Process(target=serve, args=(theirs, images, i)) for i, (_, theirs) in enumerate(pipes)
        ]

    def __enter__(self) -> "Workers":
        for process in self.processes:
            process.start()
        for end in self.ends:
            end.recv()
        return self

    def rate(self, way: str, policy: str, seconds: float) -> float:
        for end in self.ends:
            end.send((way, policy, seconds))
        return sum(end.recv() for end in self.ends)

    def __exit__(self, *_: object) -> None:
        for end, process in zip(self.ends, self.processes, strict=True):
            end.send(None)
            process.join()


def serve(pipe: Connection, images: np.ndarray, seed: int) -> None:
    torch.set_num_threads(1)
    ways = pillow_ways(images, seed) | kornia_ways(images)
    pipe.send("ready")
    while (task := pipe.recv()) is not None:
        way, policy, seconds = task
        pipe.send(rate(lambda call=ways[way], policy=policy: call(policy), seconds))


def pillow_ways(images: np.ndarray, seed: int) -> dict[str, Callable[[str], int]]:
    ready = [Image.fromarray(image) for image in images]
    drawn = {policy: list(zip(*draws(policy, seed), strict=True)) for policy in ("cifar10", "svhn", "imagenet")}

    def operations(policy: str) -> int:
        for picture, parameters in zip(ready, drawn[policy], strict=True):
            augmented(picture, *parameters)
        return len(ready)

    def arrays(policy: str) -> int:
        for image, parameters in zip(images, drawn[policy], strict=True):
            np.asarray(augmented(Image.fromarray(image), *parameters))
        return len(images)

    return {"operations": operations, "arrays": arrays}


def kornia_ways(images: np.ndarray) -> dict[str, Callable[[str], int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kornia.augmentation.auto import AutoAugment as Kornia

        augment = Kornia("cifar10")
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255).contiguous()

    def one_by_one(_: str) -> int:
        for image in batch[:100].split(1):
            augment(image)
        return 100

    def together(_: str) -> int:  # 25 calls, so that every sub-policy has its turn
        for _ in range(25):
            augment(batch)
        return 25 * len(batch)

    return {"kornia": one_by_one, "kornia, batch": together}


if __name__ == "__main__":
    main()
