"""Named places where a test may end, stop or hold a process, so that each step is tried as its last one.

Nothing happens unless TIDEMARK_FAILPOINT arms one of them: `commit.after_pending=kill`, several with commas.
What was reached is appended to the file TIDEMARK_FAILPOINT_WITNESS *before* the act, so that a test can tell a step
that did no harm from one that was never reached.

- `kill`: the process ends as in a power cut (SIGKILL); inside a Spark task that is the task's worker.
- `kill_once`: the same, but not when the witness names this failpoint already: whoever tries again goes on.
- `stop`: the process stands still (SIGSTOP) until it gets a SIGCONT: a zombie to be.
- `wait`: this thread waits until the witness file is removed; renewal of the lease goes on.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from tidemark import environment
from tidemark.errors import WrongUse

Failpoint = Literal[
    "lease.before_take",
    "lease.after_take",
    "lease.before_renewal",
    "lease.after_renewal",
    "lease.before_release",
    "lease.after_release",
    "plan.before_transaction",
    "plan.after_transaction",
    "switch.after_lock",
    "switch.after_snapshot",
    "act.before_transaction",
    "act.after_transaction",
    "consume.before_read",
    "consume.task_writing",
    "consume.task_wrote_files",
    "consume.after_read",
    "commit.before_manifest",
    "commit.after_manifest",
    "commit.before_pending",
    "commit.after_pending",
    "commit.before_replacing",
    "commit.between_moves",
    "commit.after_moves",
    "commit.after_blocks",
    "commit.after_manifest_moved",
    "commit.after_discard",
    "commit.after_holding",
    "commit.before_transaction",
    "commit.after_transaction",
    "recover.before_adopt",
    "recover.after_adopt",
    "recover.before_rollback",
    "recover.after_rollback",
    "archive.before_claim",
    "archive.after_claim",
    "archive.before_plan",
    "archive.after_plan",
    "archive.task_writing",
    "archive.after_join",
    "archive.after_gap",
    "archive.after_set_aside",
    "archive.after_index",
    "archive.between_targets",
    "archive.after_targets",
    "archive.after_verify",
    "archive.after_archived",
    "archive.between_deletes",
    "archive.after_deletes",
    "archive.after_discard",
    "archive.after_finish",
    "publish.hour_prepared",
    "publish.hour_decided",
    "publish.hour_placed",
    "publish.hour_ready",
    "publish.day_prepared",
    "publish.day_decided",
    "publish.day_placed",
    "publish.day_ready",
    "publish.before_closing",
    "announce.before_confirming",
    "announce.before_sending",
]
FAILPOINTS: tuple[Failpoint, ...] = get_args(Failpoint)

_POLL_S = 0.05


def reach(name: Failpoint) -> None:
    """Carry out what this failpoint is armed with, if it is."""
    act = _armed().get(name)
    if act:
        act(name)


@cache
def _armed() -> Mapping[str, Callable[[str], None]]:
    setting, witness = environment.failpoint(), environment.failpoint_witness()
    return parse_failpoints(setting, witness) if setting else {}


def parse_failpoints(setting: str, witness: Path | None) -> dict[str, Callable[[str], None]]:
    """What each armed failpoint does. Raise WrongUse for a name or an act that is not there: a typo arms nothing."""
    if witness is None:
        raise WrongUse(f"Cannot arm {setting!r}: TIDEMARK_FAILPOINT_WITNESS names no file")
    armed: dict[str, Callable[[str], None]] = {}
    for part in setting.split(","):
        name, _, act = part.partition("=")
        if name not in FAILPOINTS or act not in _ACTS:
            raise WrongUse(
                f"Cannot arm {part!r}: wanted <failpoint>={'|'.join(_ACTS)}, failpoints are {', '.join(FAILPOINTS)}"
            )
        armed[name] = _witnessed(witness, _ACTS[act], only_once=act == "kill_once")
    return armed


def _witnessed(witness: Path, act: Callable[[Path], None], *, only_once: bool) -> Callable[[str], None]:
    def bear_witness_and_act(name: str) -> None:
        if only_once and witness.exists() and name in witness.read_text().split():
            return
        with witness.open("a") as file:
            file.write(f"{name}\n")
        act(witness)

    return bear_witness_and_act


def _kill(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _wait(witness: Path) -> None:
    while witness.exists():
        time.sleep(_POLL_S)


_ACTS: Mapping[str, Callable[[Path], None]] = {"kill": _kill, "kill_once": _kill, "stop": _stop, "wait": _wait}
