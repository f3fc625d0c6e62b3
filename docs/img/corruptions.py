"""Draw docs/img/corruptions.png: python docs/img/corruptions.py"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import data

from odst.vision.corruptions import CORRUPTIONS, LEVELS, corrupt

ZOOM, GAP, LEFT, TOP = 2, 4, 150, 30
SIDE = 32 * ZOOM


def clean() -> np.ndarray:
    """Two pictures in the public domain (NASA's astronaut, a cup of coffee), 32×32."""
    crops = [data.astronaut()[20:280, 90:350], data.coffee()[0:400, 130:530]]
    return np.stack([np.asarray(Image.fromarray(c).resize((32, 32), Image.Resampling.BOX)) for c in crops])


def main() -> None:
    pictures = clean()
    per_picture = (len(LEVELS) + 1) * (SIDE + GAP)
    sheet = Image.new("RGB", (LEFT + 2 * per_picture + 2 * GAP, TOP + len(CORRUPTIONS) * (SIDE + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for j, picture in enumerate(pictures):
        x = LEFT + j * (per_picture + 2 * GAP)
        for column, title in enumerate(["clean", *map(str, LEVELS)]):
            middle = x + column * (SIDE + GAP) + SIDE // 2
            draw.text((middle, TOP // 2), title, fill="black", font=font, anchor="mm")
        for row, name in enumerate(CORRUPTIONS):
            y = TOP + row * (SIDE + GAP)
            if j == 0:
                draw.text((8, y + SIDE // 2), name.replace("_", " "), fill="black", font=font, anchor="lm")
            shown = [picture, *(corrupt(pictures, name, level, seed=0)[j] for level in LEVELS)]
            for column, one in enumerate(shown):
                large = Image.fromarray(one).resize((SIDE, SIDE), Image.Resampling.NEAREST)
                sheet.paste(large, (x + column * (SIDE + GAP), y))
    sheet.save(Path(__file__).with_name("corruptions.png"), optimize=True)


if __name__ == "__main__":
    main()
