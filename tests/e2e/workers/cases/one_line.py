"""A worker as README has it, or with a store by name; prints what its back end gives."""

import sys

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

how = sys.argv[1]
if how == "trainer":
    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    trainer = mx.gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 1.0}, kvstore="bytescheduler"
    )
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 2))).sum()
    loss.backward()
    trainer.step(1)
    assert trainer._kvstore is not None
    print("sum", 1 - net.weight.data().asnumpy()[0, 0])
else:
    kvs = mx.kv.create("bytescheduler") if how == "name" else mx.kv.create("dist_sync")
    if how == "wrapped":
        kvs = ScheduledKVS(kvs)
    kvs.init("a", mx.nd.zeros(3))
    kvs.push("a", mx.nd.ones(3) * (kvs.rank + 1))
    out = mx.nd.zeros(3)
    kvs.pull("a", out)
    print("sum", out.asnumpy()[0])
