"""The programs the project was asked for, letter for letter, on several numbers of ranks; and their faults, one by one.

They lie beside a checkout in ../shared/accept and aren't part of it: without that folder this file is skipped.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ACCEPT = Path(os.environ.get("MINISPORE_ACCEPT", Path(__file__).parents[2] / "shared" / "accept"))
pytestmark = pytest.mark.skipif(not ACCEPT.is_dir(), reason=f"the acceptance programs aren't here ({ACCEPT.name}/)")

CHECKSUM = """
import zlib as _zlib
print("checksum", _zlib.crc32(b"".join(p.asnumpy().tobytes() for p in net.get_parameters())))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the data, as the programs' README says."""
    path = tmp_path_factory.mktemp("accept")
    from minispore.dataset.download import write_digits
    write_digits(path / "mnist")
    shutil.copytree(path / "mnist", path / "MNIST")
    for program in ACCEPT.glob("*.py"):
        shutil.copy(program, path)
    return path


def msrun(folder, *args, timeout=120):
    return subprocess.run([sys.executable, "-m", "minispore.launch.msrun", *args], cwd=folder, capture_output=True, text=True,
                          timeout=timeout)


def changed(folder, program, name, *pairs):
    """A copy of a program with some text replaced."""
    text = (folder / program).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return name


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_first_document(folder, n):
    done = msrun(folder, f"--device_num={n}", "python", "seed_1_data_parallel.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"分布式训练开始，设备数：{n}，当前设备：0" in done.stdout and "分布式训练完成！" in done.stdout
    assert done.stdout.count("epoch 5/5") == 1                                   # rank 0 alone shows progress


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("program", ["seed_1_data_parallel.py", "seed_2_cluster_corrected.py"])
def test_all_ranks_end_with_the_same_weights(folder, program, n):
    (folder / f"sum_{program}").write_text((folder / program).read_text() + CHECKSUM)
    done = msrun(folder, f"--worker_num={n}", f"--local_worker_num={n}", "--join=True", f"sum_{program}")
    assert done.returncode == 0, done.stdout + done.stderr
    sums = re.findall(r"checksum (\d+)", done.stdout)
    assert len(sums) == n and len(set(sums)) == 1


EQUAL = """
x_0 = ms.communication.communicator().broadcast(x.asnumpy(), 0).wait()
one = np.maximum(x_0 @ net.weight1.full().asnumpy(), 0) @ net.weight2.full().asnumpy()
print("off by", np.abs(output.asnumpy() - one).max(), net.weight1.shape, net.weight2.shape)
"""


@pytest.mark.parametrize("n", [2, 4, 8])
def test_semi_auto_equals_one_device(folder, n):
    (folder / "equal.py").write_text((folder / "seed_1_semi_auto.py").read_text() + EQUAL)
    done = msrun(folder, f"--device_num={n}", "python", "equal.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "输入形状：(32, 128)" in done.stdout and "输出形状：(32, 64)" in done.stdout and "执行成功" in done.stdout
    off = re.findall(r"off by (\S+) \(128, 64\) \(64, 64\)", done.stdout)
    assert len(off) == n and max(map(float, off)) < 1e-3           # sums of 128 products of two sums of 128, float32


def test_semi_auto_on_thread_ranks(folder, capsys, monkeypatch):
    """As written, on 4 threads that each run the script."""
    from minispore.communication import communicator
    from minispore.lab import run_ranks
    from minispore.launch import alias
    alias.install(False)
    monkeypatch.setitem(sys.modules, "mindspore", __import__("minispore"))
    code = compile((folder / "seed_1_semi_auto.py").read_text(), "seed_1_semi_auto.py", "exec")

    def program():
        scope = {"__name__": "__main__"}
        exec(code, scope)
        net = scope["net"]
        whole = [t.full().asnumpy() for t in (net.weight1, net.weight2)]
        x = communicator().broadcast(scope["x"].asnumpy(), 0).wait()
        return scope["output"].asnumpy(), np.maximum(x @ whole[0], 0) @ whole[1]
    with pytest.warns(UserWarning, match=r"there is no Ascend device|the ranks gave different values"):
        results = run_ranks(program, 4)
    for mine, one in results:
        np.testing.assert_allclose(mine, one, atol=1e-3)
        np.testing.assert_array_equal(mine, results[0][0])
    assert "输出形状：(32, 64)" in capsys.readouterr().out


@pytest.mark.parametrize("n", [1, 3])
def test_semi_auto_says_how_many_devices_it_needs(folder, n):
    done = msrun(folder, f"--device_num={n}", "python", "seed_1_semi_auto.py")
    assert done.returncode != 0
    assert re.search(rf"MatMul .*seed_1_semi_auto.py:31.*needs 2 devices, which does not divide the {n} there are",
                     done.stdout + done.stderr)


FAULTS = {
    "images as they come": (
        [('    data_set = data_set.map([Rescale(1.0 / 255.0, 0), Normalize((0.1307,), (0.3081,)), HWC2CHW()], "image")\n', "")],
        r"x is uint8 of shape \(32, 28, 28, 1\).*Rescale\(1/255, 0\), HWC2CHW"),
    "pad_mode": (
        [(', pad_mode="valid")', ")")],
        r"6·14·14 = 1176.*864 = 6·12·12.*pad_mode='valid'"),
    "sparse": (
        [('SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")', 'SoftmaxCrossEntropyWithLogits(reduction="mean")')],
        r"class indices, but sparse=False \(the default\).*sparse=True"),
    "reduction": (
        [('SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")', "SoftmaxCrossEntropyWithLogits(sparse=True)")],
        r"loss has shape \(32,\).*reduction='mean'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_second_document_say_their_correction(folder, fault):
    pairs, message = FAULTS[fault]
    name = changed(folder, "seed_2_cluster_corrected.py", f"fault_{fault.replace(' ', '_')}.py", *pairs)
    done = msrun(folder, "--worker_num=2", name)
    assert done.returncode != 0
    assert re.search(message, done.stdout + done.stderr, re.S), done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("Traceback (most recent call last)") == 1
