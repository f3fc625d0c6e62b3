import numpy as np
from PIL import Image

from odst.vision.sheets import contact_sheet


def colours(n: int, side: int = 32) -> np.ndarray:
    return np.stack([np.full((side, side, 3), (7 * i % 256, 90, 255 - 5 * i), np.uint8) for i in range(n)])


def test_every_picture_is_on_the_sheet_with_its_exact_pixels() -> None:
    pixels = np.asarray(contact_sheet(colours(23), columns=5)).reshape(-1, 3)
    found = {tuple(pixel) for pixel in np.unique(pixels, axis=0).tolist()}
    assert {tuple(image[0, 0].tolist()) for image in colours(23)} <= found


def test_a_sheet_has_as_many_rows_as_its_columns_ask_for() -> None:
    one, two = contact_sheet(colours(10), columns=10), contact_sheet(colours(11), columns=10)
    assert one.width == two.width
    assert two.height - one.height == 96 + 8


def test_long_captions_stay_inside_their_column() -> None:
    sheet = contact_sheet(colours(2), ["a very long caption that cannot fit below it", "b"], columns=2)
    gap = np.asarray(sheet)[:, 8 + 96 : 8 + 96 + 8]
    assert (gap == 255).all()


def test_pictures_of_any_size_and_no_pictures_make_a_sheet() -> None:
    images = [np.zeros((300, 100, 3), np.uint8), np.zeros((8, 8, 3), np.uint8)]
    assert (
        contact_sheet(images, ["tall\n300×100", "small\n8×8"], title="A title wider than both pictures, by far").width
        > 2 * 96
    )
    assert isinstance(contact_sheet([], title="nothing"), Image.Image)
