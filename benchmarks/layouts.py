"""Logical programs: how long the compiler takes, and a step in semi-auto parallel beside one in data parallel.

Both kinds of step take turns on 4 MPI ranks, so that a change of the machine's speed meets both.
"""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

STEPS = """
import time
import numpy as np
import minispore as ms
from minispore import Tensor, nn
from minispore.demo.lenet import LeNet5
ms.init()
ms.set_context(mode=ms.GRAPH_MODE)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(128, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, 128).astype(np.int32)
mine = slice(32 * ms.get_rank(), 32 * ms.get_rank() + 32)

def trainer():
    net = LeNet5()
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.01, 0.9))

def run(step, data, steps):
    start = time.perf_counter()
    for _ in range(steps):
        step(*data)
    return steps * 128 / (time.perf_counter() - start)

kinds = {"data_parallel": (dict(gradients_mean=True), [Tensor(x[mine]), Tensor(y[mine])]),
         "semi_auto_parallel": ({}, [Tensor(x), Tensor(y)])}
steps = {}
for turn in range(4):
    for mode, (settings, data) in kinds.items():
        if turn == 0:
            ms.set_auto_parallel_context(parallel_mode=mode, **settings)
            steps[mode] = trainer(), ms.common.state.current().compiler
        ms.common.state.current().parallel["parallel_mode"] = mode
        ms.common.state.current().compiler = steps[mode][1]
        speed = run(steps[mode][0], data, 10 if turn == 0 else 60)
        if turn and ms.get_rank() == 0:
            print("speed", mode, speed, flush=True)
"""


def compile_times() -> None:
    """Seconds until a rank's program of a Transformer's training step is there."""
    from transformer import Split, batches, training_step

    from minispore.parallel import compile
    shared = dict(enable_parallel_optimizer=True, parallel_optimizer_config={"parallel_optimizer_threshold": 0})
    for layers in (2, 12):
        for devices, split in ((8, Split(2, 2, 2)), (64, Split(4, 4, 2))):
            step, batch = training_step(split, layers=layers), batches(1)[0]
            start = time.perf_counter()
            program = compile(step, *batch, device_num=devices, **shared)
            print(f"{layers:2} layers on {devices:2} devices: {time.perf_counter() - start:5.2f} s, "
                  f"{len(program.graph.nodes)} nodes, {sum(program.cut.collectives().values())} tensors communicated")


def main() -> None:
    compile_times()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "steps.py")
        script.write_text(STEPS)
        out = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=4", f"--log_dir={folder}", script],
                             capture_output=True, text=True, check=True).stdout
    speeds: dict[str, list[float]] = {}
    for line in out.splitlines():
        if "speed" in line:
            mode, value = line.split()[-2:]
            speeds.setdefault(mode, []).append(float(value))
    best = {mode: max(values) for mode, values in speeds.items()}
    for mode, value in best.items():
        print(f"LeNet, batch 128 on 4 ranks, {mode}: {value:,.0f} samples/s ({value / best['data_parallel']:.2f}×)")


if __name__ == "__main__":
    main()
