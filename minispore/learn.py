"""A learner's own folder."""
import json
import sys
from pathlib import Path


def kernel(folder: Path) -> Path:
    """Write a kernelspec `python3` that is this very Python; for JUPYTER_PATH, where it comes before all others."""
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = {"argv": argv, "display_name": "Python 3 (minispore)", "language": "python", "metadata": {"debugger": True}}
    (spec / "kernel.json").write_text(json.dumps(text, indent=1), "utf-8")
    return folder
