"""Files that break a rule of `test_naming` still.  A list may only shrink."""

from typing import Sequence

COMMENTS: Sequence[str] = [
    "bytescheduler/_session/framework.py",
    "bytescheduler/_session/keys.py",
    "bytescheduler/_session/rounds.py",
    "bytescheduler/_session/whose.py",
    "bytescheduler/_started/interrupt.py",
    "bytescheduler/_timeline/files.py",
    "bytescheduler/_timeline/plot.py",
    "bytescheduler/cli.py",
    "bytescheduler/commands/advise.py",
    "bytescheduler/config.py",
    "bytescheduler/launch.py",
    "bytescheduler/mxnet/_arrays/rows_tensor.py",
    "bytescheduler/mxnet/_choice/opening.py",
    "bytescheduler/mxnet/_sessions/tensor_session.py",
    "bytescheduler/mxnet/_stores/passthrough.py",
    "bytescheduler/mxnet/_stores/rescaling.py",
    "bytescheduler/torch/_crossing/joint.py",
    "bytescheduler/torch/_crossing/self_check.py",
    "bytescheduler/torch/_device/transit.py",
    "bytescheduler/torch/_job/meeting.py",
    "bytescheduler/torch/_sums/compression.py",
    "bytescheduler/torch/_sums/objects.py",
    "python/mxnet.pxi",
]

PAGES: Sequence[str] = []

VARIABLES: Sequence[str] = []
