"""Writes docs/notebooks/screens/NN.png, the main picture of each chapter as a browser shows it, for the course's index.

    python notebooks/screenshots.py 04     of chapter 04 (without a number: of all)

It takes the pictures that pages.py has written, chromium with its driver, and selenium: pip install '.[browser]'.
"""
import argparse
import sys
from pathlib import Path

import build
import pages
from selenium import webdriver
from selenium.webdriver.common.by import By

SCREENS = pages.PAGES / "screens"
MAIN = {"00": "01", "01": "03", "02": "02", "03": "04", "04": "03", "05": "01", "06": "03", "08": "04"}     # chapter: picture
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1.5")


def browser(dark: bool = False) -> webdriver.Chrome:
    """Chromium without a window, for readers who prefer light or dark."""
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    driver = webdriver.Chrome(options=options)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.set_window_size(1600, 2400)          # larger than any picture
    return driver


def shot(driver: webdriver.Chrome, picture: Path) -> bytes:
    """A picture as PNG, and nothing round it."""
    driver.get(picture.resolve().as_uri())
    return driver.find_element(By.TAG_NAME, "svg").screenshot_as_png


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("screenshots.py", description="Write the pictures of the course's index.", allow_abbrev=False)
    p.add_argument("chapters", nargs="*", metavar="NN", help="which, say 04 (all)")
    o = p.parse_args(argv)
    SCREENS.mkdir(exist_ok=True)
    driver = browser()
    try:
        for source in build.sources(o.chapters):
            chapter = source.name[:2]
            png = shot(driver, pages.PAGES / source.stem / f"{MAIN[chapter]}.svg")
            (SCREENS / f"{chapter}.png").write_bytes(png)
            print(f"{chapter}.png: {len(png):,} bytes")
    finally:
        driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
