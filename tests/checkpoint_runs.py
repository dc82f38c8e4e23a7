"""A small training that the checkpoint tests save, kill and resume. As a program: a server of processes to kill."""
import os
import sys
from contextvars import Context
from itertools import count

import numpy as np

import minispore as ms
from minispore import Tensor, nn
from minispore.common import random
from minispore.common.state import RankState, enter
from minispore.dataset import NumpySlicesDataset
from minispore.train import (
    CheckpointConfig,
    ModelCheckpoint,
    RunContext,
    latest_checkpoint,
    load_training_state,
    save_training_state,
)

ROWS, BATCH, INPUTS, CLASSES = 22, 4, 96, 5
STEPS = -(-ROWS // BATCH)           # of an epoch; the last batch is shorter
OPTIMIZERS = {"momentum": lambda p: nn.SGD(p, [0.1, 0.05, 0.02] * 30, momentum=0.9, nesterov=True, weight_decay=1e-3),
              "adam": lambda p: nn.Adam(p, 1e-2, use_amsgrad=True)}


class Network(nn.Cell):
    def __init__(self, classes, dtype):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Dense(INPUTS, 256), nn.ReLU(), nn.Dense(256, classes, dtype=dtype)

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(x)))


class Arguments(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


class Run:
    """A training of float32 parameters with shuffled data and a new random number each step."""

    def __init__(self, optimizer="momentum", seed=5, classes=CLASSES, dtype=ms.float32):
        ms.set_seed(seed)
        self.net = Network(classes, dtype)
        self.optimizer = OPTIMIZERS[optimizer](self.net.trainable_params())
        self.cell = nn.TrainOneStepCell(nn.WithLossCell(self.net, nn.CrossEntropyLoss()), self.optimizer)
        x = np.random.default_rng(1).normal(size=(ROWS, INPUTS)).astype(np.float32)
        y = np.arange(ROWS, dtype=np.int32) % CLASSES
        self.data = NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(BATCH)
        self.epoch = self.step = 0
        self.arguments = Arguments(batch_num=STEPS, epoch_num=10 ** 6, train_network=self.cell, network=self.net,
                                   optimizer=self.optimizer)

    def train(self, steps=None):
        """Go on; yields (epoch, step) after each step: so many epochs, and steps of the next, are done."""
        for epoch in count(self.epoch):
            for number, (columns, _) in enumerate(self.data.batches(epoch)):
                if number < self.step:
                    continue
                if steps == 0:
                    return
                noise = random.uniform(random.next_key("noise"), columns["x"].shape, -0.1, 0.1).astype(np.float32)
                self.cell(Tensor(columns["x"] + noise), Tensor(columns["y"]))
                self.epoch, self.step = (epoch, number + 1) if number + 1 < STEPS else (epoch + 1, 0)
                steps = None if steps is None else steps - 1
                yield self.epoch, self.step

    def state(self):
        """All that a resumed run must have equal: bytes of every parameter, and the random state."""
        return {p.name: p.asnumpy().tobytes() for p in self.cell.get_parameters()} | {"random": random.get_state()}

    def resume(self, file):
        state = load_training_state(file, self.cell)
        self.epoch, self.step = state.epoch, state.step
        return self

    def args(self):
        """What Model gives its callbacks after a step; one object all the time, as there."""
        number = self.epoch * STEPS + self.step
        self.arguments.update(cur_epoch_num=(number - 1) // STEPS + 1, cur_step_num=number)
        return self.arguments


class Undisturbed:
    """The states of a training that nothing disturbs, by (epoch, step). It is a rank of its own: its random numbers too."""

    def __init__(self, optimizer="momentum"):
        self.context = Context()
        self.context.run(enter, RankState())
        self.run = self.context.run(Run, optimizer)
        self.steps = self.run.train()
        self.states = {(0, 0): self.context.run(self.run.state)}

    def __getitem__(self, place):
        while place not in self.states:
            now = self.context.run(next, self.steps)
            self.states[now] = self.context.run(self.run.state)
        return self.states[place]


def save_for_ever(folder):
    """Resume from the newest checkpoint in the folder, and save after every step, until killed.

    Prints "saving" and the process's id, then "saved" after every step.
    """
    newest, run = latest_checkpoint(folder), Run()
    if newest:
        run.resume(newest)
    saver = ModelCheckpoint(directory=folder, config=CheckpointConfig(keep_checkpoint_max=2))
    saver.on_train_begin(RunContext(run.args()))
    print("saving", os.getpid(), flush=True)
    for epoch, step in run.train():
        save_training_state(os.path.join(folder, "last.safetensors"), run.cell, epoch=epoch, step=step)
        saver.on_train_step_end(RunContext(run.args()))
        print("saved", flush=True)


def serve():
    """For each folder named on a line, a process that saves there until it is killed; prints how it ended."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                save_for_ever(line.strip())
            finally:
                os._exit(1)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
