"""Trains one step as each page for those that come from elsewhere has it: ``migrate.py PAGE``."""

import sys
import warnings

import mxnet as mx
from written import blocks

warnings.filterwarnings("ignore", "Parameter .* is already")
for page in sys.argv[1:]:
    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    known = {"mx": mx, "params": net.collect_params(), "batch_size": 1}
    code = next(text for text in blocks(f"migrate/{page}", "python") if "mxnet" in text)
    before, has_step, step = code.partition("\n...\n")
    exec(before, known)
    kvs = known.get("kvs", known.get("kv"))
    rank, size = (kvs.rank, kvs.num_workers) if kvs else (known["bps"].rank(), known["bps"].size())
    with mx.autograd.record():
        loss = (net(mx.nd.ones((1, 2))) * (rank + 1)).sum()
    loss.backward()
    if has_step:
        exec(step, known)
    else:
        trainer = mx.gluon.Trainer(known["params"], "sgd", {"learning_rate": 0.1}, kvstore=kvs)
        trainer.step(kvs.num_workers)
    # The mean of the gradients 1 and 2, at the rate 0.1.
    assert abs(net.weight.data().asnumpy()[0, 0] - 0.85) < 1e-6, net.weight.data()
    print(f"{page}: rank {rank} of {size} trained")
