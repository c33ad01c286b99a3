"""A worker that trains a model whose gradients come in an order of their own, as stock MXNet does.

A layer is frozen, two branches are joined, a parameter is used twice and a layer is left out in
some steps, so that its gradient is stale; and names say nothing of the order in which layers are
needed.
"""

from typing import List

import mxnet as mx
import numpy as np
from callers import Train, Weights, compare, contexts, weights_of

# With the larger a layer takes milliseconds, which tell its gradient's moment from another's.
UNITS, LARGE, SMALL, STEPS = 128, 6144, 16, 7
# In the order of forward; where one comes among the others, as the trainer sorts, is its key.
FROZEN, SHARED, LEFT, RIGHT, JOINED, SKIPPED, HEAD = "fdagbhc"


def skips(step: int) -> bool:
    """Return whether the step leaves a layer out: one of the three that tell the order."""
    return step % 3 == 2


class Net(mx.gluon.Block):  # type: ignore[misc]  # MXNet has no types
    """Layers without biases, named by one letter each."""

    def __init__(self) -> None:
        super().__init__(prefix="")
        with self.name_scope():
            for name in "abcdfgh":
                layer = mx.gluon.nn.Dense(
                    UNITS, in_units=UNITS, use_bias=False, activation="tanh", prefix=name
                )
                setattr(self, name, layer)
            tied = getattr(self, SHARED).params
            self.again = mx.gluon.nn.Dense(
                UNITS, in_units=UNITS, use_bias=False, prefix=SHARED, params=tied
            )
        getattr(self, FROZEN).weight.grad_req = "null"

    def forward(self, x: mx.nd.NDArray, skip: bool) -> mx.nd.NDArray:
        layer = {name: getattr(self, name) for name in "abcdfgh"}
        x = layer[SHARED](layer[FROZEN](x))
        x = self.again(layer[JOINED](layer[LEFT](x) + layer[RIGHT](x)))
        return layer[HEAD](x if skip else layer[SKIPPED](x))


def training(update_on_kvstore: bool, batch: int) -> Train:
    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        net = Net()
        net.initialize(ctx=contexts(who))
        random = np.random.RandomState(7)
        for parameter in net.collect_params().values():
            parameter.set_data(mx.nd.array(random.uniform(-0.1, 0.1, parameter.shape)))
        first = weights_of(net)
        options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
        trainer = mx.gluon.Trainer(
            net.collect_params(), "sgd", options, store, update_on_kvstore=update_on_kvstore
        )
        data = [
            mx.nd.array(np.random.RandomState(worker).randn(batch, UNITS), ctx=context)
            for context, worker in zip(contexts(who), who)
        ]
        for step in range(STEPS):
            losses = []
            with mx.autograd.record():
                for mine in data:
                    out = net(mine * (step + 1), skips(step))
                    losses.append(((out - 1) ** 2).mean())
            mx.autograd.backward(losses)
            trainer.step(1, ignore_stale_grad=True)
        weights = weights_of(net)
        same = [name for name in weights if (weights[name] == first[name]).all()]
        assert same == [f"{FROZEN}weight"], same
        return weights

    return train


def main() -> None:
    """Let workers update, which leaves what is stale alone; then the store, which does not."""
    keeper = mx.kv.create("bytescheduler")  # who closes the last store leaves the job
    for update_on_kvstore, batch in ((False, LARGE), (True, SMALL)):
        compare(training(update_on_kvstore, batch))
    keeper.close()
    print("well done")


if __name__ == "__main__":
    main()
