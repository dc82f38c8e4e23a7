"""LeNet training steps on one thread: samples/s in GRAPH_MODE and PYNATIVE_MODE beside PyTorch eager.

The peers take turns, so that a change of the machine's speed meets all of them.
"""
import argparse
import os
import statistics
import subprocess
import sys

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

TORCH = """
import sys, time, torch, torch.nn as nn
torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=True)
batch, steps = int(sys.argv[1]), int(sys.argv[2])
x, y = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
def step():
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
for _ in range(10): step()
start = time.perf_counter()
for _ in range(steps): step()
print(steps * batch / (time.perf_counter() - start))
"""

MINISPORE = """
import sys, time, numpy as np, minispore as ms
from minispore import nn, Tensor
from minispore.demo.lenet import LeNet5
batch, steps, mode = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ms.set_context(mode=mode)
net = LeNet5()
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.01, 0.9))
rng = np.random.default_rng(0)
x = Tensor(rng.standard_normal((batch, 1, 28, 28)).astype(np.float32))
y = Tensor(rng.integers(0, 10, batch).astype(np.int32))
for _ in range(10): step(x, y)
start = time.perf_counter()
for _ in range(steps): step(x, y)
print(steps * batch / (time.perf_counter() - start))
"""


def speed(python, code, *args) -> float | None:
    """Samples a second as the program prints them; None where it can't run (torch isn't installed)."""
    done = subprocess.run([python, "-c", code, *map(str, args)], capture_output=True, text=True)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{'batch':>6} {'graph':>10} {'pynative':>10} {'torch':>10}   graph/torch  pynative/torch")
    for batch, steps in ((32, 150), (256, 30)):
        peers = {"graph": (sys.executable, MINISPORE, batch, steps, 0), "pynative": (sys.executable, MINISPORE, batch, steps, 1),
                 "torch": (args.torch, TORCH, batch, steps)}
        found = {name: [] for name in peers}
        for _ in range(args.rounds):
            for name, call in peers.items():
                found[name].append(speed(*call))
        best = {name: statistics.median(v) if None not in v else None for name, v in found.items()}
        ratios = [f"{best[n] / best['torch']:.2f}" if best["torch"] and best[n] else "-" for n in ("graph", "pynative")]
        shown = [f"{v:,.0f}" if v else "-" for v in best.values()]
        print(f"{batch:>6} {shown[0]:>10} {shown[1]:>10} {shown[2]:>10}   {ratios[0]:>11}  {ratios[1]:>14}")


if __name__ == "__main__":
    main()
