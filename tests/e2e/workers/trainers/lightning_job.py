"""Lightning with two workers: the same runs over Gloo, over the backend, and across the barrier.

`short` makes two of the runs, `alone` one with a single worker, and in `loss` worker 1 is killed.
The folder is the job's, for checkpoints.
"""

import logging
import os
import pathlib
import signal
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple, Type

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import (
    Callback,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    OnExceptionCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from bytescheduler.errors import UsageError
from bytescheduler.lightning import ByteSchedulerStrategy

Anything = Any  # types of packages are not read
Tensors = Dict[str, torch.Tensor]
EPOCHS = 2
BACKEND = "bytescheduler"
CLIP = 0.01


class Model(pl.LightningModule):
    """Has a weight of its own besides those of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4, bias=False)
        )
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs) * self.scale

    def loss_of(self, batch: List[torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def training_step(self, batch: List[torch.Tensor], index: int) -> torch.Tensor:
        loss = self.loss_of(batch)
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return loss

    def test_step(self, batch: List[torch.Tensor], index: int) -> None:
        self.log("test", self.loss_of(batch), sync_dist=True)

    def validation_step(self, batch: List[torch.Tensor], index: int) -> None:
        self.log("validation", self.loss_of(batch), sync_dist=True)

    def configure_optimizers(self) -> Anything:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class Lbfgs(Model):
    """Its optimizer evaluates the closure several times."""

    def configure_optimizers(self) -> Anything:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)


class Looking(Model):
    """Keeps gradients that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: List[torch.Tensor] = []

    def look(self) -> None:
        self.seen += [p.grad.clone() for p in self.parameters() if p.grad is not None]


class OwnStep(Looking):
    """Calls the closure itself, and sees means behind it."""

    def optimizer_step(
        self, epoch: int, index: int, optimizer: Anything, closure: Callable[[], Anything]
    ) -> None:
        closure()
        self.look()
        optimizer.step()


class OwnBackward(Looking):
    """Clips gradients in `backward`, where they are means."""

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()
        self.look()
        nn.utils.clip_grad_norm_(self.parameters(), CLIP)


class Fails(Model):
    """Raises an error in backward, when some gradients are made."""

    def training_step(self, batch: List[torch.Tensor], index: int) -> torch.Tensor:
        hidden = self.net[:3](batch[0])
        if index == 3:
            hidden.register_hook(self._fail)
        return nn.functional.cross_entropy(self.net[3](hidden) * self.scale, batch[1])

    def _fail(self, _: torch.Tensor) -> None:
        assert self.scale.grad is not None
        raise ValueError("in the middle")


class Sharded(Model):
    """FSDP2 shards it."""

    def configure_model(self) -> None:
        mesh = self.device_mesh["data_parallel"]
        for layer in (self.net[0], self.net[3], self):
            fully_shard(layer, mesh=mesh)


class Manual(Model):
    """Steps by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: List[torch.Tensor], index: int) -> torch.Tensor:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        optimizer.step()
        return loss


class Dies(Model):
    """Worker 1 is killed in its third step."""

    def training_step(self, batch: List[torch.Tensor], index: int) -> torch.Tensor:
        if index == 3 and self.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(batch, index)


class SeesGradients(Callback):
    """Keeps what hooks see in `p.grad`, which are means in each of them."""

    def __init__(self) -> None:
        self.seen: List[torch.Tensor] = []

    def _look(self, module: nn.Module) -> None:
        self.seen += [p.grad.clone() for p in module.parameters() if p.grad is not None]

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._look(module)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: Anything
    ) -> None:
        self._look(module)


class Replaces(Callback):
    """Puts another optimizer into the place of that of the strategy."""

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        trainer.optimizers = [torch.optim.SGD(module.parameters(), lr=0.1)]


class Crossings(Callback):
    """Counts the weights that wait for their update when a batch has ended."""

    waiting = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, *_: Anything
    ) -> None:
        self.waiting += sum(type(param) is not nn.Parameter for param in module.parameters())


class Run(NamedTuple):
    """A way to train; `callbacks` makes new ones for each training.

    `refusal` is in the error of our strategy.  With `goes_on` a test comes behind the fit, and then
    another fit, of an epoch.
    """

    kind: Type[Model] = Model
    crosses: bool = True
    refusal: str = ""
    callbacks: Callable[[], List[Callback]] = list
    options: Dict[str, Anything] = {}  # noqa: RUF012
    goes_on: bool = False


RUNS = {
    "plain": Run(),
    "fit, test, fit": Run(goes_on=True),
    "two passes": Run(options={"accumulate_grad_batches": 2}),
    "four passes, a short last round": Run(options={"accumulate_grad_batches": 4}),
    "passes that change": Run(callbacks=lambda: [GradientAccumulationScheduler({0: 1, 1: 3})]),
    "validation within a round": Run(
        options={"accumulate_grad_batches": 4, "val_check_interval": 2}
    ),
    "clipped by norm": Run(crosses=False, options={"gradient_clip_val": 0.1}),
    "clipped by value": Run(
        crosses=False, options={"gradient_clip_val": CLIP, "gradient_clip_algorithm": "value"}
    ),
    "bf16 mixed": Run(options={"precision": "bf16-mixed"}),
    "bf16": Run(options={"precision": "bf16-true"}),
    "seen gradients": Run(crosses=False, callbacks=lambda: [SeesGradients()]),
    "a step of its own": Run(kind=OwnStep, crosses=False, options={"accumulate_grad_batches": 2}),
    "backward of its own": Run(kind=OwnBackward, crosses=False),
    "averaged weights": Run(
        callbacks=lambda: [StochasticWeightAveraging(1e-2, swa_epoch_start=1)],
        options={"max_epochs": 3},
    ),
    "LBFGS": Run(kind=Lbfgs, crosses=False),
    "manual": Run(kind=Manual, refusal="automatic_optimization is False"),
    "another optimizer": Run(
        callbacks=lambda: [Replaces()], refusal="trainer.optimizers has another SGD"
    ),
}


def data(count: int, seed: int) -> DataLoader:
    numbers = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 16, generator=numbers)
    return DataLoader(
        TensorDataset(inputs, torch.randint(0, 4, (count,), generator=numbers)), batch_size=4
    )


class Trained(NamedTuple):
    """What a training leaves."""

    weights: Tensors
    metrics: Tensors
    gradients: List[torch.Tensor]
    waited: int  # weights that waited when a batch had ended


def fit(
    strategy: Anything, run: Run, folder: pathlib.Path, again: str = "", *, devices: int = 2
) -> Trained:
    """Train, with checkpoints in `folder`; `again` is the one to go on from."""
    pl.seed_everything(3, verbose=False)
    model, crossings = run.kind(), Crossings()
    callbacks = [
        crossings,
        ModelCheckpoint(folder, "{epoch}", every_n_epochs=1, save_top_k=-1),
        ModelCheckpoint(folder, "{step}", every_n_train_steps=2, save_top_k=-1),
        *run.callbacks(),
    ]
    trainer = pl.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=devices,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=callbacks,
        **{"max_epochs": EPOCHS, **run.options},
    )
    path = folder / again if again else None
    trainer.fit(model, data(44, 0), data(16, 1), ckpt_path=path, weights_only=False)
    if run.goes_on:
        trainer.test(model, data(16, 1), verbose=False)
        trainer.fit_loop.max_epochs += 1
        trainer.fit(model, data(44, 0), data(16, 1))
    return Trained(
        {name: value.detach().clone() for name, value in model.state_dict().items()},
        {name: value.clone() for name, value in trainer.callback_metrics.items()},
        [grad for source in (*callbacks, model) for grad in getattr(source, "seen", [])],
        crossings.waiting,
    )


def tensors_in(value: Anything) -> Iterator[Tuple[str, torch.Tensor]]:
    """Yield all tensors of nested containers, with their places."""
    if isinstance(value, torch.Tensor):
        yield "", value
    elif isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((f"/{key}{place}", tensor) for place, tensor in tensors_in(item))


def check_equal(mine: Anything, other: Anything, what: str) -> None:
    """Raise AssertionError unless both have the same tensors, bit for bit."""
    ours, theirs = dict(tensors_in(mine)), dict(tensors_in(other))
    assert ours.keys() == theirs.keys(), what
    assert ours, what
    for place, tensor in ours.items():
        assert torch.equal(tensor, theirs[place]), f"{what}{place}: {tensor} {theirs[place]}"


def saved_by(folder: pathlib.Path, name: str) -> Anything:
    """Return the weights and the optimizer's state of a checkpoint."""
    checkpoint = torch.load(folder / name, weights_only=False)
    return checkpoint["state_dict"], checkpoint["optimizer_states"]


def check_trained(mine: Trained, other: Trained, what: str) -> None:
    check_equal(mine.weights, other.weights, f"{what}: weights")
    check_equal(mine.metrics, other.metrics, f"{what}: metrics")
    assert len(mine.gradients) == len(other.gradients), what
    for ours, theirs in zip(mine.gradients, other.gradients):
        assert torch.equal(ours, theirs), f"{what}: gradients"


def train_all(names: List[str], folder: pathlib.Path) -> None:
    """Make each run over Gloo, over the backend, and across the barrier; compare them.

    All runs over Gloo come first: PyTorch's store is for one group of it.
    """
    gloo = {}
    for name in names:
        place = folder / f"gloo {name}"
        gloo[name] = fit(DDPStrategy(process_group_backend="gloo"), RUNS[name], place)
    is_whole = len(names) == len(RUNS)
    sharded = train_sharded("gloo", folder) if is_whole else {}
    failed = fail(DDPStrategy(process_group_backend="gloo"), folder / "gloo fails")
    check_refused(BACKEND, Run(), "a group of cpu:gloo", folder)
    dist.barrier()  # else a worker may meet the store that worker 0 is about to close
    dist.destroy_process_group()
    for name in names:
        run = RUNS[name]
        ddp = fit(DDPStrategy(process_group_backend=BACKEND), run, folder / f"ddp {name}")
        check_trained(ddp, gloo[name], f"{name}, DDP")
        assert dist.get_backend() == BACKEND
        if run.refusal:
            check_refused(BACKEND, run, run.refusal, folder)
        else:
            check_crossing(name, gloo[name], folder)
        print(f"{name}: weights are Gloo's", flush=True)
    if is_whole:
        check_clipped_singly(gloo["clipped by value"], folder)
        check_equal(train_sharded(BACKEND, folder), sharded, "FSDP2")
        print("FSDP2: weights are Gloo's", flush=True)
    lbfgs = Run(kind=Lbfgs)
    strategy = ByteSchedulerStrategy(crossing=True)
    check_refused(strategy, lbfgs, "LBFGS cannot cross the barrier", folder)
    check_equal(fail(BACKEND, folder / "fails"), failed, "saved on an exception")


def check_refused(strategy: Anything, run: Run, refusal: str, folder: pathlib.Path) -> None:
    message = ""
    try:
        fit(strategy, run, folder / "refused")
    except UsageError as error:
        message = str(error)
    assert refusal in message, message


def fail(strategy: Anything, folder: pathlib.Path) -> Anything:
    """Let backward fail, and return what is saved then."""
    run = Run(kind=Fails, callbacks=lambda: [OnExceptionCheckpoint(folder, "failed")])
    errors: List[BaseException] = []
    try:
        fit(strategy, run, folder)
    except ValueError as error:
        errors = [error, *filter(None, [error.__context__])]
    assert [str(error) for error in errors] == ["in the middle"]
    return saved_by(folder, "failed.ckpt")


def check_crossing(name: str, gloo: Trained, folder: pathlib.Path) -> None:
    """Train across the barrier, and from a checkpoint; compare all with Gloo's."""
    run, place, first = RUNS[name], folder / f"crossing {name}", folder / f"gloo {name}"
    crossing = fit(BACKEND, run, place)
    check_trained(crossing, gloo, f"{name}, crossing")
    assert (crossing.waited > 0) == run.crosses, (name, crossing.waited)
    for checkpoint in ("step=2.ckpt", "epoch=0.ckpt", "epoch=1.ckpt"):
        check_equal(saved_by(place, checkpoint), saved_by(first, checkpoint), checkpoint)
    resumed = fit(BACKEND, run, place, "epoch=0.ckpt")
    check_equal(resumed.weights, gloo.weights, f"{name}, resumed")


def check_clipped_singly(gloo: Trained, folder: pathlib.Path) -> None:
    """Clip each gradient when it is the mean, which lets steps cross."""

    def clip(param: nn.Parameter) -> None:
        nn.utils.clip_grad_value_([param], CLIP)

    strategy = ByteSchedulerStrategy(on_gradient=clip, compression_params=None, crossing=True)
    crossing = fit(strategy, Run(), folder / "clipped singly")
    check_trained(crossing, gloo, "clipped singly")
    assert crossing.waited > 0


def train_sharded(backend: str, folder: pathlib.Path) -> Tensors:
    """Train with FSDP2 and return the weights."""
    strategy = ModelParallelStrategy(2, 1, process_group_backend=backend)
    run = Run(kind=Sharded, options={"max_epochs": 1})
    trained = fit(strategy, run, folder / f"sharded {backend}")
    assert dist.get_backend() == backend
    return {name: value.full_tensor() for name, value in trained.weights.items()}


def train_alone(folder: pathlib.Path) -> None:
    """Train with one worker, which has nothing to average."""
    theirs = fit(DDPStrategy(process_group_backend="gloo"), Run(), folder / "gloo", devices=1)
    dist.destroy_process_group()
    check_trained(fit(BACKEND, Run(), folder / "ours", devices=1), theirs, "alone")


def main(case: str, place: str) -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    folder = pathlib.Path(place)
    if case == "alone":
        train_alone(folder)
    elif case == "loss":
        fit(BACKEND, Run(kind=Dies), folder)
    else:
        train_all(["plain", "manual"] if case == "short" else list(RUNS), folder)
    print("all is well", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
