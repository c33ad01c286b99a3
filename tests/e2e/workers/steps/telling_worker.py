"""Pushes and pulls an array, the bytes of whose elements are a word: ``telling_worker.py WORD``."""

import sys

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS

(value,) = np.frombuffer(sys.argv[1].encode(), "<f4")
grad = mx.nd.array(np.full(100_000, value))
out = mx.nd.zeros(grad.shape)
kvs = ScheduledKVS(None)
kvs.init("w", out)
kvs.pushpull("w", grad, out=out)
assert (out.asnumpy() == value).all()
kvs.close()
