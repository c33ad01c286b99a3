"""One mean of two workers, as a launcher has started them; PyTorch seems not to be installed."""

import sys

import tensorflow as tf

import bytescheduler.tensorflow as bps

assert "torch" not in sys.modules
sys.modules["torch"] = None  # type: ignore[assignment]
bps.init()
for _ in range(2):
    assert bps.push_pull(tf.fill([3], float(bps.rank()))).numpy().tolist() == [0.5] * 3
print(f"rank {bps.rank()} of {bps.size()}: all is well", flush=True)
bps.shutdown()
