"""Hugging Face's Trainer with two workers: over Gloo, over the backend, and with our optimizer.

The folder is the job's, for checkpoints.  Models are small, with random weights.
"""

import os
import pathlib
import sys
from typing import Any, Dict, List, Type

import torch
import torch.distributed as dist
import transformers
from accelerate.state import AcceleratorState, GradientState
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import bytescheduler.torch as bps

Anything = Any  # types of packages are not read
BACKEND = "bytescheduler"
ROWS = 36
RUNS: Dict[str, Dict[str, Anything]] = {
    "plain": {},
    "not clipped": {"max_grad_norm": 0.0},
    "not clipped, four passes": {"max_grad_norm": 0.0, "gradient_accumulation_steps": 4},
    "four passes, a short last round": {"gradient_accumulation_steps": 4},
    "bf16": {"bf16": True},
}


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random tokens, with labels."""

    def __init__(self) -> None:
        numbers = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(0, 64, (ROWS, 12), generator=numbers)
        self._labels = torch.randint(0, 2, (ROWS,), generator=numbers)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._labels[index]}


class Waiting(TrainerCallback):  # type: ignore[misc]
    """Counts the weights that still wait behind each step, and behind `model.zero_grad()`."""

    def __init__(self) -> None:
        self.count = 0

    def on_step_end(self, *_: Anything, model: torch.nn.Module, **__: Anything) -> None:
        self.count += sum(type(param) is not torch.nn.Parameter for param in model.parameters())


class OurTrainer(Trainer):
    """Our optimizer carries the gradients, in the place of DDP."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        prepare, clip = self.accelerator.prepare_model, self.accelerator.clip_grad_norm_

        def prepare_bare(model: Anything, **options: Anything) -> Anything:
            return prepare(model, **{**options, "evaluation_mode": True})

        def clip_means(parameters: Anything, max_norm: float, **options: Anything) -> Anything:
            if max_norm == float("inf"):  # nothing is clipped: the norm is for the log alone
                return None
            self.wrapped.synchronize()
            return clip(parameters, max_norm, **options)

        self.accelerator.prepare_model = prepare_bare
        self.accelerator.clip_grad_norm_ = clip_means

    def create_optimizer(self, model: Anything = None) -> Anything:
        if not hasattr(self, "wrapped"):
            self.wrapped = self.optimizer = bps.DistributedOptimizer(
                super().create_optimizer(model),
                model=self.model,
                backward_passes_per_step=self.args.gradient_accumulation_steps,
            )
        return self.optimizer


def train(
    kind: Type[Trainer],
    options: Dict[str, Anything],
    folder: pathlib.Path,
    first: str = "",
    *,
    times: int = 1,
) -> List[torch.Tensor]:
    """Train two epochs, or the second behind a checkpoint; return weights and losses."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    transformers.set_seed(1)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
        )
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=2,
        num_train_epochs=2,
        learning_rate=1e-3,
        save_strategy="epoch",
        eval_strategy="epoch",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        **options,
    )
    waiting = Waiting()
    data = {"train_dataset": Rows(), "eval_dataset": Rows()}
    trainer = kind(model, arguments, callbacks=[waiting], **data)
    assert arguments.world_size == 2
    for _ in range(times):
        trainer.train(resume_from_checkpoint=str(folder / first) if first else None)
    crosses = kind is OurTrainer and arguments.max_grad_norm == 0
    assert (waiting.count > 0) == crosses, (options, waiting.count)
    weights = [param.detach().clone() for param in model.parameters()]
    if kind is OurTrainer:
        trainer.wrapped.close()
    history = [row for row in trainer.state.log_history if "loss" in row or "eval_loss" in row]
    losses = [row.get("loss", row.get("eval_loss")) for row in history]
    return [*weights, torch.tensor(losses)]


def check_equal(mine: List[torch.Tensor], other: List[torch.Tensor], what: str) -> None:
    assert len(mine) == len(other), what
    assert all(torch.equal(one, two) for one, two in zip(mine, other)), what


def main(place: str) -> None:
    folder = pathlib.Path(place)
    # Its store is a file, as the next group's may not meet that of a worker which is late.
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=size)
    gloo = {name: train(Trainer, run, folder / f"gloo {name}") for name, run in RUNS.items()}
    twice = train(Trainer, {}, folder / "gloo twice", times=2)
    dist.destroy_process_group()
    dist.init_process_group(BACKEND)
    bps.init()
    for name, run in RUNS.items():
        for kind, what in ((Trainer, "DDP"), (OurTrainer, "our optimizer")):
            own = folder / f"{what} {name}"
            check_equal(train(kind, run, own), gloo[name], f"{name}, {what}")
            steps = sorted(int(path.name.rpartition("-")[2]) for path in own.glob("checkpoint-*"))
            again = train(kind, run, own, f"checkpoint-{steps[0]}")
            check_equal(again[:-1], gloo[name][:-1], f"{name}, {what}, resumed")
        print(f"{name}: weights are Gloo's", flush=True)
    for kind in (Trainer, OurTrainer):
        again = train(kind, {}, folder / f"{kind.__name__} twice", times=2)
        check_equal(again, twice, f"{kind.__name__}, twice")
    dist.destroy_process_group()
    print("all is well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
