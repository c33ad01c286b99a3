"""The networks of the examples, as symbols (Module) and as blocks (Gluon)."""

import mxnet as mx

NETWORKS = ("mlp", "lenet")


def symbol(name: str) -> mx.sym.Symbol:
    """Return the network `name` with a softmax output, for the Module API."""
    data = mx.sym.Variable("data")
    features = _mlp_symbol(data) if name == "mlp" else _lenet_symbol(data)
    logits = mx.sym.FullyConnected(features, num_hidden=10, name="fc_out")
    return mx.sym.SoftmaxOutput(logits, name="softmax")


def _mlp_symbol(data: mx.sym.Symbol) -> mx.sym.Symbol:
    net = mx.sym.flatten(data)
    for index, width in enumerate((256, 128)):
        net = mx.sym.FullyConnected(net, num_hidden=width, name=f"fc{index}")
        net = mx.sym.Activation(net, act_type="relu", name=f"relu{index}")
    return net


def _lenet_symbol(data: mx.sym.Symbol) -> mx.sym.Symbol:
    # 3x3 kernels with padding, so that the 8x8 digits survive two poolings as well as 28x28 images.
    net = data
    for index, channels in enumerate((20, 50)):
        net = mx.sym.Convolution(
            net, kernel=(3, 3), pad=(1, 1), num_filter=channels, name=f"conv{index}"
        )
        net = mx.sym.Activation(net, act_type="tanh", name=f"tanh{index}")
        net = mx.sym.Pooling(net, pool_type="max", kernel=(2, 2), stride=(2, 2))
    net = mx.sym.FullyConnected(mx.sym.flatten(net), num_hidden=500, name="fc0")
    return mx.sym.Activation(net, act_type="tanh", name="tanh_fc")


def block(name: str) -> mx.gluon.nn.HybridBlock:
    """Return the network `name` with ten outputs, for Gluon."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    if name == "mlp":
        net.add(
            nn.Flatten(),
            nn.Dense(256, activation="relu"),
            nn.Dense(128, activation="relu"),
        )
    else:
        for channels in (20, 50):
            net.add(nn.Conv2D(channels, kernel_size=3, padding=1, activation="tanh"))
            net.add(nn.MaxPool2D(pool_size=2, strides=2))
        net.add(nn.Flatten(), nn.Dense(500, activation="tanh"))
    net.add(nn.Dense(10))
    return net
