"""The jars: pinned here, resolved once, kept in the cache folder; one of Spark's is built from our own source."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from zipfile import ZIP_DEFLATED, ZipFile

import tidemark
from tidemark.environment import cache_folder
from tidemark.errors import TidemarkError
from tidemark.stack.files import end_of
from tidemark.stack.java import Java
from tidemark.stack.lock import hold_lock
from tidemark.stack.processes import plain_environment

JAR_SETS: Mapping[str, tuple[str, ...]] = {
    "kafka": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
    "hdfs": (
        "org.apache.hadoop:hadoop-hdfs:3.4.1",
        "org.apache.hadoop:hadoop-hdfs-client:3.4.1",
        "org.apache.hadoop:hadoop-common:3.4.1",
    ),
    "compiler": ("org.eclipse.jdt:ecj:3.42.0",),
    "spark": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "org.apache.spark:spark-avro_2.13:4.0.0",
    ),
}
# What reads Kafka inside Spark; a Java runtime has no compiler of its own.
_SOURCE = Path(tidemark.__file__).parent / "consume" / "KafkaRanges.java"
_BUILT = "tidemark_kafka-ranges-{version}.jar"
_LIST = "jars.json"


def pyspark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def jar_paths(name: str) -> list[Path]:
    """The jars of a set that was resolved."""
    jars = _find_set(name)
    if jars is None:
        raise TidemarkError(f"Cannot find the jars of {name} in {cache_folder()}: run `tidemark stack jars`")
    return jars


def class_path(name: str) -> str:
    return ":".join(str(path) for path in jar_paths(name))


def resolve_jars(names: Collection[str], java: Java, on_step: Callable[[str], None]) -> None:
    """Download the sets that are not there yet; two callers at once do it once."""
    if all(_find_set(name) for name in names):
        return
    with hold_lock(cache_folder() / "jars.lock"):
        wanted = {*names, "compiler"} if "spark" in names else set(names)
        missing = [name for name in JAR_SETS if name in wanted and not _find_set(name)]
        if missing:
            on_step(f"jars: resolving {', '.join(missing)}, once")
            begin = time.monotonic()
            _download(missing, java)
            on_step(f"jars: resolved in {time.monotonic() - begin:.1f} s")


def without_shipped(names: Iterable[str], shipped: Iterable[str]) -> list[str]:
    """The jars that PySpark does not ship itself, whatever their version: no class is there twice."""
    present = {artifact_of(name) for name in shipped}
    return [name for name in names if artifact_of(name.partition("_")[2]) not in present]


def artifact_of(jar: str) -> str:
    """`lz4-java` of `lz4-java-1.8.0.jar`."""
    return re.sub(r"-\d[^/]*$", "", jar)


def _find_set(name: str) -> list[Path] | None:
    """None unless every file is there in full."""
    folder = _folder(name)
    try:
        sizes = json.loads((folder / _LIST).read_text())
        is_whole = all((folder / jar).stat().st_size == size for jar, size in sizes.items())
    except (FileNotFoundError, ValueError):
        return None
    return [folder / jar for jar in sizes] if is_whole else None


def _folder(name: str) -> Path:
    wanted = "\n".join(JAR_SETS[name]).encode()
    if name == "spark":
        wanted += _SOURCE.read_bytes()
    return cache_folder() / "jars" / f"{name}-{hashlib.sha256(wanted).hexdigest()[:12]}"


def _download(names: list[str], java: Java) -> None:
    """Into a folder of its own, which nobody else writes to: not even what a killed run has left behind."""
    for left_over in (*cache_folder().glob("ivy-*"), *(cache_folder() / "jars").glob(".staged-*")):
        shutil.rmtree(left_over, ignore_errors=True)
    with TemporaryDirectory(dir=cache_folder(), prefix="ivy-") as folder:
        for name, found in _run_ivy(Path(folder), names, java).items():
            paths = [Path(path) for path in found]
            if name == "spark":
                paths.append(_build(paths, Path(folder), java))
            _keep_set(name, paths)


def _build(spark_jars: list[Path], folder: Path, java: Java) -> Path:
    jar, classes = folder / _BUILT.format(version=tidemark.__version__), folder / "classes"
    class_path = ":".join(str(path) for path in (*spark_jars, *(pyspark_home() / "jars").glob("*.jar")))
    (compiler,) = jar_paths("compiler")
    done = subprocess.run(
        [java.program, "-jar", compiler, "-17", "-nowarn", "-cp", class_path, "-d", classes, _SOURCE],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TidemarkError(f"Cannot compile {_SOURCE}: the compiler ended with {done.returncode}:\n{done.stderr}")
    with ZipFile(jar, "w", ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes))
    return jar


def _run_ivy(folder: Path, names: list[str], java: Java) -> dict[str, list[str]]:
    log, answer = folder / "ivy.log", folder / "answer.json"
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "tidemark.stack.ivy", str(folder), str(answer)],
            input=json.dumps({name: JAR_SETS[name] for name in names}).encode(),
            env=plain_environment() | {"JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise TidemarkError(
            f"Cannot resolve the jars of {', '.join(names)}: Ivy ended with {done.returncode}; "
            f"check that the network is reachable; its output ends with:\n{end_of(log)}"
        )
    found: dict[str, list[str]] = json.loads(answer.read_text())
    return found


def _keep_set(name: str, paths: list[Path]) -> None:
    wanted = [path.name for path in paths]
    if name == "spark":
        wanted = without_shipped(wanted, os.listdir(pyspark_home() / "jars"))
    folder = _folder(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(mkdtemp(dir=folder.parent, prefix=".staged-"))
    for path in paths:
        if path.name in wanted:
            shutil.copy(path, staged)
    sizes = {jar: (staged / jar).stat().st_size for jar in wanted}
    (staged / _LIST).write_text(json.dumps(sizes, indent=2))
    shutil.rmtree(folder, ignore_errors=True)
    staged.rename(folder)
