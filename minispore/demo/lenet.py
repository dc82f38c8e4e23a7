"""LeNet on handwritten digits: a single-card script, and the lines that make it data parallel.

    msrun --worker_num=4 lenet.py --data DIR

With --steps N it stops after N steps and saves the weights, so that runs on different numbers of ranks can be compared.
"""
import argparse
from time import perf_counter

import numpy as np

import minispore as ms
import minispore.dataset as ds
from minispore import Model, nn, ops
from minispore.communication import get_group_size, get_rank, get_record, init
from minispore.dataset.transforms import TypeCast
from minispore.dataset.vision import HWC2CHW, Normalize, Rescale

GLOBAL_BATCH = 64           # of all ranks together, so that any number of ranks trains on the same batches


class LeNet5(nn.Cell):
    """LeCun et al., 1998, with max pooling and ReLU: 44,190 weights."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * 4 * 4, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(ops.relu(self.conv1(x)))
        x = self.pool(ops.relu(self.conv2(x)))
        x = self.flatten(x)
        x = ops.relu(self.fc1(x))
        x = ops.relu(self.fc2(x))
        return self.fc3(x)


def create_dataset(folder, usage, batch_size):
    """Batches of this rank's shard: images float32 (n, 1, 28, 28), labels int32 (n,)."""
    data = ds.MnistDataset(folder, usage=usage, num_shards=get_group_size(), shard_id=get_rank(), shuffle=usage == "train")
    data = data.map([Rescale(1 / 255, 0), Normalize((0.1307,), (0.3081,)), HWC2CHW()], "image")
    data = data.map(TypeCast(ms.int32), "label")
    return data.batch(batch_size, drop_remainder=usage == "train")


def main():
    parser = argparse.ArgumentParser(description="LeNet, data parallel")
    parser.add_argument("--data", required=True, help="folder with MNIST-format files")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps")
    parser.add_argument("--save", help="write the weights to this .npz file")
    args = parser.parse_args()

    init()                                                                      # line 1: join the ranks
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)    # line 2; line 3: the dataset's shard
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    rank, ranks = get_rank(), get_group_size()
    if GLOBAL_BATCH % ranks:
        raise SystemExit(f"the global batch of {GLOBAL_BATCH} does not divide by {ranks} ranks; use 1, 2, 4, 8, …")

    net = LeNet5()
    model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), learning_rate=0.01, momentum=0.9),
                  metrics={"accuracy"})
    train = create_dataset(args.data, "train", GLOBAL_BATCH // ranks)
    if args.steps:
        train = train.take(args.steps)
    begin = perf_counter()
    model.train(1 if args.steps else args.epochs, train, verbose=0 if args.steps else 1)
    seconds = perf_counter() - begin
    if args.save and rank == 0:
        np.savez(args.save, **{p.name: p.asnumpy() for p in net.trainable_params()})
    if not args.steps:
        share = get_record().seconds() / seconds
        accuracy = model.eval(create_dataset(args.data, "test", 64))["accuracy"]
        if rank == 0:
            samples = train.get_dataset_size() * GLOBAL_BATCH * args.epochs
            print(f"test accuracy {accuracy:.4f}   {samples / seconds:,.0f} samples/s on {ranks} ranks   "
                  f"{share:.0%} of the time in communication")


if __name__ == "__main__":
    main()
