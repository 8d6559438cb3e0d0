"""Pictures of a notebook for its page: ``python docs/images/notebook.py``; it wants nbconvert, Pillow and chromium.

They show cells of examples/notebooks/cuda-cells.ipynb as JupyterLab does, in its light and its dark theme.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from nbconvert import HTMLExporter
from nbformat import reads
from PIL import Image, ImageChops

HERE = Path(__file__).parent
BOOK = HERE.parents[1] / "examples/notebooks/cuda-cells.ipynb"
SHOWN = ("--profile by_columns", "transpose[(n // 32, n // 32), (32, 32)](x, y, n)\nby_columns", "total")
WIDTH, HEIGHT, SCALE = 960, 1400, 1.5


def shot(theme: str) -> Image.Image:
    """Draw the cells that are shown, without what is empty around them."""
    book = json.loads(BOOK.read_text())
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    book["cells"] = [cell for cell in cells if any(text in "".join(cell["source"]) for text in SHOWN)]
    html, _ = HTMLExporter(theme=theme).from_notebook_node(reads(json.dumps(book), as_version=4))
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "page.html"), Path(folder, "page.png")
        page.write_text(html)
        size, scale = f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size, scale]
        subprocess.run(
            ["chromium", *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True
        )
        whole = Image.open(picture).convert("RGB")
    empty = Image.new("RGB", whole.size, whole.getpixel((0, whole.height - 1)))
    _, _, _, bottom = ImageChops.difference(whole, empty).getbbox()
    return whole.crop((0, 0, whole.width, min(bottom + 16, whole.height)))


for theme in ("light", "dark"):
    shot(theme).quantize(160).save(HERE / f"notebook-{theme}.png", optimize=True)
