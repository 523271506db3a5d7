"""A stack of its own, in which every process has the same armed failpoints."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tidemark.demo.run import DAGS_PAUSED
from tidemark.failpoints import Failpoint
from tidemark.stack import DEFAULT_SERVICES, Stack

_SETTINGS = "cluster: main, owner: tests, grace: 60s, max_clock_skew: 30s"


def write_streams(folder: Path, names: Iterable[str], *settings: str) -> None:
    """As `streams.yaml`; each with the topic of its name."""
    all_settings = ", ".join((_SETTINGS, *settings))
    rows = (f"  {name}: {{topic: {name}, root: 'hdfs:///airflow/{name}', {all_settings}}}\n" for name in names)
    (folder / "streams.yaml").write_text(f"streams:\n{''.join(rows)}")


def set_stream(folder: Path, name: str, **settings: str) -> None:
    """Under a running Airflow, too: whoever reads `streams.yaml` meanwhile finds a whole one."""
    file, new = folder / "streams.yaml", folder / "streams.yaml.new"
    document = yaml.safe_load(file.read_text())
    document["streams"][name] |= settings
    new.write_text(yaml.safe_dump(document))
    new.replace(file)


def write_policy(folder: Path, policy: str) -> None:
    """Airflow's own way for a cluster to overrule its DAGs, for the stack that will be in the folder."""
    config = folder / "stack" / "airflow" / "config"
    config.mkdir(parents=True)
    (config / "airflow_local_settings.py").write_text(policy)


@contextmanager
def armed_with(steps: Iterable[Failpoint], folder: Path) -> Iterator[Stack]:
    """Each step kills once; `witness` in the folder names those that did."""
    armed = {
        "TIDEMARK_STREAMS": str(folder / "streams.yaml"),
        "TIDEMARK_FAILPOINT": ",".join(f"{step}=kill_once" for step in steps),
        "TIDEMARK_FAILPOINT_WITNESS": str(folder / "witness"),
    }
    stack = Stack(folder / "stack")
    try:
        stack.up(DEFAULT_SERVICES, extra_environment={**DAGS_PAUSED, **armed})
        yield stack
    finally:
        stack.down()
