"""What `odst init` writes under [method] and [training]: computed from the sizes of the sets, with the arithmetic beside it."""

import math
from dataclasses import dataclass

from odst.evaluation.contract import needed
from odst.few_labels import (
    FEWEST_STEPS,
    FEWEST_STUDENT_STEPS,
    LABELLED_COPIES,
    MOST_STEPS,
    PASSES,
    SPARE,
    SPARE_IMAGES,
    STUDENT_PASSES,
    alpha_in,
    alpha_out,
    base_steps,
    leak,
    student_steps,
)

BATCH = 64
RATIO = (5, 10, 15)


@dataclass(frozen=True)
class Sizes:
    n: int  # labelled
    K: int
    m: int  # pool, without what is excluded
    n_in: int
    n_out: int
    vectors: bool  # not pixels


def method(sizes: Sizes) -> str:
    """The lines below `name` of [method]."""
    n, K, m, n_in, n_out = sizes.n, sizes.K, sizes.m, sizes.n_in, sizes.n_out
    inside, outside = alpha_in(n_in, K), alpha_out(n, K, m, n_out)
    wanted = leak(n, K)
    buys = (
        "A larger val_out makes the threshold surer, and lets you promise a share (docs/method.md)."
        if n_out * wanted >= m
        else f"{n_out:,} images cannot say less; {math.ceil(m / wanted):,} would bring it down to {round(wanted):,}."
    )
    room = (
        "one in ten may be wrong"
        if n_in >= 10 * K
        else f"one may be wrong, 1 - {K}/{n_in} (at least 0.5); with {10 * K:,} images it would be 0.9"
    )
    return METHOD.format(
        room=room, two=f"2·{n:,}/{K}", n_in=f"{n_in:,}", each=f"{n_in / K:.3g}", inside=inside, certify=needed(inside), n_out=f"{n_out:,}", m=f"{m:,}",
        outside=outside, leak=f"{round((1 - outside) * m):,}", first=RATIO[0], n=f"{n:,}", K=K, k=f"{round(RATIO[0] * n / K):,}", buys=buys,
        ratio=list(RATIO), copies=COPIES_ONE if sizes.vectors else COPIES, labelled_copies=LABELLED_COPIES,
        spare=SPARE if sizes.vectors else SPARE_IMAGES,
    )  # fmt: skip


def training(sizes: Sizes) -> str:
    """The phases of [training]."""
    n = sizes.n
    if not sizes.vectors:
        steps = max(300, min(3000, 15 * n // BATCH))
        return PIXELS.format(steps=steps, passes=f"{round(steps * BATCH / n):,}", n=f"{n:,}")
    students = ", ".join(STUDENT.format(steps=student_steps(n, BATCH, ratio, sizes.m)) for ratio in RATIO)
    return VECTORS.format(
        passes=PASSES, student_passes=STUDENT_PASSES, n=f"{n:,}", least=FEWEST_STEPS,
        student_least=FEWEST_STUDENT_STEPS, most=f"{MOST_STEPS:,}",
        steps=base_steps(n, BATCH), students=students,
    )  # fmt: skip


METHOD = """\
# A class's threshold is the higher of two, each for the size of the set that sets it.
# Of the val_in images above it ({n_in} images, {each} a class) at least alpha_in are of the class: {room}.
# {certify} above it without an error would certify that (95 %): a larger val_in makes it surer, and worth asking for more.
alpha_in = {inside}
# Of val_out ({n_out} images) alpha_out lies below it. Of the pool's {m} about (1 - alpha_out)·{m} = {leak} unrelated images
# then pass in each class, which may take k = {first}·{n}/{K} = {k} in the first round.
# {buys}
alpha_out = {outside}  # 1 - max(min({two}, 50)/{m}, 1/{n_out}): up to two for each labelled one, no fewer than val_out can see
ratio = {ratio}  # selected images per labelled one, by round
pick = "top"  # the k most confident above the threshold; "spread": any k of those above
{copies}labelled_copies = {labelled_copies}  # each labelled image counts so often among the selected ones
# The pool's push to uniform confidence: 1 is the paper's, for thousands of labels a class. With few it drowns the labelled
# images; "auto" tries several and takes the largest that val_in shows to be harmless. The first model's push spares
# what your labels alone find as sure as this share of val_in.
rest_weight = "auto"
spare = {spare}
"""
PIXELS = """\
# {steps} steps are {passes} passes over the {n} labelled images; no "flip" for digits and text
phases = [{{ steps = {steps}, lr = 0.1, shape = "cosine", augment = ["crop:4", "flip"] }}]
"""
VECTORS = """\
# {passes} passes over the {n} labelled vectors, but at least {least} and at most {most} steps; students {student_passes} over labelled and
# selected ones, at least {student_least}.
# Longer training makes the first model worse: it learns the few labelled vectors by heart.
phases = [{{ steps = {steps}, lr = 0.01, shape = "cosine" }}]
students = [{students}]
"""
STUDENT = '{{ phases = [{{ steps = {steps}, lr = 0.01, shape = "cosine" }}] }}'
COPIES = "max_copies = 3  # of one image, where a class has fewer above its threshold than it may take\n"
COPIES_ONE = "max_copies = 1  # no image is repeated: with vectors, which have no crops and flips, copies harm\n"
