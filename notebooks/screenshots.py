"""Writes docs/notebooks/screens/NN.png, the picture of each chapter in the table of notebooks/README.md, from the drawings that
pages.py has written. Takes the extra `browser`, chromium and its driver.

    python notebooks/screenshots.py 04             of chapter 04 (without a number: of all that have a page)
    python notebooks/screenshots.py --all FOLDER   every drawing of every page, in light and in dark, to look at them
"""
import argparse
import base64
import shutil
import sys
from pathlib import Path

import build
import pages
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SCREENS = pages.PAGES / "screens"
MAIN = {"00": "01", "01": "03", "02": "02", "03": "02", "04": "03", "05": "01", "06": "03", "08": "01"}    # drawing of a page
MOST = 200_000                  # bytes of a picture in the table
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1400")


def browser() -> webdriver.Chrome:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    chromium, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if not chromium or not driver:
        raise SystemExit("chromium and chromedriver must be on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in OPTIONS:
        options.add_argument(option)
    return webdriver.Chrome(options=options, service=Service(driver))       # named, or selenium would ask the network for them


def render(driver: webdriver.Chrome, drawing: Path, scheme: str = "light") -> bytes:
    """A drawing as PNG, of twice its size in pixels, with nothing around its panel."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    driver.execute_cdp_cmd("Emulation.setDefaultBackgroundColorOverride", {"color": dict.fromkeys("rgba", 0)})
    driver.get(drawing.resolve().as_uri())
    box = driver.execute_script("const box = document.documentElement.getBoundingClientRect(); return [box.width, box.height]")
    clip = {"x": 0, "y": 0, "width": box[0], "height": box[1], "scale": 2}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    return base64.b64decode(shot["data"])


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"{path.name}: {len(data):,} bytes")


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("screenshots.py", description="Write the chapters' pictures as PNG.", allow_abbrev=False)
    p.add_argument("chapters", nargs="*", metavar="NN", help="which, say 04 (all that have a page)")
    p.add_argument("--all", type=Path, metavar="FOLDER", help="all drawings, in light and in dark, there")
    o = p.parse_args(argv)
    driver, large = browser(), []
    try:
        for source in build.sources(o.chapters):
            drawings, number = pages.PAGES / source.stem, source.name[:2]
            if o.all:
                for drawing in sorted(drawings.glob("*.svg")):
                    for scheme in ("light", "dark"):
                        write(o.all / f"{number}_{drawing.stem}_{scheme}.png", render(driver, drawing, scheme))
            elif number in MAIN and (drawing := drawings / f"{MAIN[number]}.svg").exists():
                write(SCREENS / f"{number}.png", data := render(driver, drawing))
                large += [number] * (len(data) > MOST)
    finally:
        driver.quit()
    if large:
        print(f"larger than {MOST:,} bytes: {', '.join(large)}", file=sys.stderr)
    return int(bool(large))


if __name__ == "__main__":
    sys.exit(main())
