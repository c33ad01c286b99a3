"""A worker that finds a logistic regression with one compression after another.

``logistic.py METHODS``: METHODS is JSON, a dictionary of compression by name, or null for none.
The last line has the loss on this worker's samples, and a checksum of the weights, by name, once.

A sample has words: many of the common ones, which tell its label, and some of the rare ones.  So a
gradient has a tenth of its elements about equally large, ten times as many as topk sends.
"""

import json
import sys
import zlib
from typing import Any, Dict, Optional, Tuple

import mxnet as mx
import numpy as np
from scipy.sparse import csr_matrix

from bytescheduler.mxnet import ScheduledKVS

FEATURES, COMMON = 20_000, 2_000
SAMPLES = 4_000  # of each worker
WORDS, RARE_WORDS = 200, 20  # of a sample
STEPS = 500
LEARNING_RATE = 0.5
SPREAD = 2.5  # of the logarithms of odds

Floats = np.ndarray


def samples_of(rank: int) -> Tuple[csr_matrix, Floats]:
    """Return the words of this worker's samples, and their labels: 1 or -1."""
    alike = np.random.RandomState(0)  # on every worker
    places = alike.permutation(FEATURES)
    truth = np.zeros(FEATURES)
    truth[places[:COMMON]] = SPREAD / np.sqrt(WORDS) * alike.choice((-1, 1), COMMON)
    own = np.random.RandomState(1 + rank)
    common = own.randint(0, COMMON, (SAMPLES, WORDS))
    rare = own.randint(COMMON, FEATURES, (SAMPLES, RARE_WORDS))
    words = places[np.hstack([common, rare])]
    values = own.choice((-1.0, 1.0), words.shape)
    starts = np.arange(0, words.size + 1, words.shape[1])
    shape = (SAMPLES, FEATURES)
    samples = csr_matrix((values.ravel(), words.ravel(), starts), shape, dtype=np.float32)
    chances = 1 / (1 + np.exp(-samples.dot(truth)))
    return samples, np.where(own.uniform(size=SAMPLES) < chances, 1.0, -1.0)


def regressed(
    compression: Optional[Dict[str, Any]], samples: csr_matrix, labels: Floats
) -> Tuple[float, int]:
    """Return the loss at the end, and the checksum of the weights."""
    store = ScheduledKVS()
    if compression is not None:
        store.set_gradient_compression(compression)
    total = mx.nd.zeros((FEATURES,))
    store.init(0, total)
    transposed = samples.T.tocsr()
    weights = np.zeros(FEATURES, np.float32)
    for _ in range(STEPS):
        wrong = -labels / (1 + np.exp(labels * samples.dot(weights)))
        gradient = transposed.dot(wrong.astype(np.float32)) / SAMPLES
        store.pushpull(0, mx.nd.array(gradient), out=total)
        weights -= LEARNING_RATE / store.num_workers * total.asnumpy()
    loss = float(np.mean(np.logaddexp(0, -labels * samples.dot(weights))))
    store.close()
    return loss, zlib.crc32(weights.tobytes())


def main() -> None:
    methods = json.loads(sys.argv[1])
    place = ScheduledKVS(mx.kv.create("dist_sync"))  # a process without a store leaves the job
    samples, labels = samples_of(place.rank)
    ends = {}
    for name, compression in methods.items():
        ends[name] = [regressed(compression, samples, labels)]
        print(f"{name}: {ends[name][0][0]:.4f}", flush=True)
    place.barrier()
    print(json.dumps(ends), flush=True)
    place.close()


if __name__ == "__main__":
    main()
