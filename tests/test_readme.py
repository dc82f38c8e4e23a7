"""Every command and snippet the README shows, run as it stands there."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
PYTHON = [code for language, code in BLOCKS if language == "python"]
BIN = Path(sys.executable).parent


def shell(command, folder):
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    env.pop("PYTHONUNBUFFERED", None)       # or the ranks' prints mix, word by word, under mpirun
    done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def accuracies(out):
    """The different numbers the ranks printed."""
    return set(map(float, re.findall(r"accuracy (\S+)", out)))


def test_the_script_on_four_ranks_as_written(tmp_path):
    script = next(code for code in PYTHON if "MnistDataset" in code)
    (tmp_path / "train.py").write_text(script)
    commands = next(code for language, code in BLOCKS if "minispore data digits --out digits" in code)
    out = "".join(shell(line, tmp_path) for line in commands.splitlines())
    (accuracy,) = accuracies(out)
    assert out.count("accuracy") == 4
    for line in ("mpirun -n 4 minispore run train.py", "python train.py"):
        assert line in README
        (again,) = accuracies(shell(line, tmp_path))
        assert abs(again - accuracy) < 0.005            # on one rank rounding differs, by a sample or two
    line = "minispore simulate train.py --cards 64 --cluster ascend910b"
    assert f"```\n{line}\n```" in README and "64 ranks of ascend910b (8 a node)" in shell(line, tmp_path)
    (tmp_path / "theirs.py").write_text(script.replace("minispore", "mindspore"))
    assert "accuracy" in shell("minispore run -n 2 theirs.py", tmp_path)


def test_the_other_snippets(capsys):
    space = {}
    for code in PYTHON:
        if "MnistDataset" not in code:
            exec(compile(code, "README.md", "exec"), space)
    out = capsys.readouterr().out
    assert "[2. 3. 4. 5.] [ 6. 10. 14. 18.]" in out and "24 messages" in out and "AllReduce" in out
    one, other = re.search(r"loss (\S+) on one device (\S+)", out).groups()
    assert abs(float(one) - float(other)) < 1e-5 and "up.weight: (256, 64) as (bc, -) on 8 ranks, here (64, 64)" in out
    assert "rank 0: waits in Receive" in out and "Tanh()" in out and "the same bits: True" in out


@pytest.mark.parametrize("command", ["minispore demo", "minispore data digits --out DIR", "minispore data mnist --out DIR",
                                     "minispore doctor", "minispore bench collectives", "minispore bench calibrate",
                                     "minispore learn", "minispore grade e05", "minispore hang LOGDIR", "minispore trace LOGDIR",
                                     "minispore run -n 4 train.py", "minispore simulate train.py",
                                     "msrun --worker_num=4 train.py"])
def test_commands_in_the_table_exist(command, tmp_path):
    assert f"`{command}`" in README
    words = command.replace("DIR", "").split()
    help_of = words[:2] if words[0] == "minispore" else words[:1]
    assert "usage" in shell(" ".join([*help_of, "--help"]), tmp_path).lower()


def test_make_targets_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in re.findall(r"make ([\w-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_folders_exist():
    root = Path(__file__).parent.parent
    for name in re.findall(r"^\| `minispore/(\w+)`", README, re.M):
        assert (root / "minispore" / name).is_dir(), name
