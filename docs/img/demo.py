"""Draw docs/img/demo.png, the first screen of the page that `odst demo` writes: python docs/img/demo.py runs/demo/index.html

Two threads are what most readers will see; another number of threads, or another CPU, selects a few other pictures.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

FILE = Path(__file__).with_suffix(".png")


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None or len(sys.argv) != 2:
        sys.exit(f"{__doc__}It takes Chromium, and the page.")
    page = Path(sys.argv[1]).resolve()
    asked = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,540", f"--screenshot={FILE}"]
    subprocess.run([browser, *asked, page.as_uri()], check=True, capture_output=True, timeout=120)
    with Image.open(FILE) as picture:
        drawn = picture.convert("RGB")
    drawn.save(FILE, optimize=True)


if __name__ == "__main__":
    main()
