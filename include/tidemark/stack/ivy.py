"""`python -m tidemark.stack.ivy <folder> <answer>`: resolve jars through the Ivy that PySpark carries.

A program of its own: the JVM and PySpark's view of the environment end with it. It reads the coordinates of
each set from standard input (JSON) and writes the paths of each set's jars to the file <answer> (JSON).
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.java_gateway import launch_gateway


def resolve(jvm: Any, folder: Path, coordinates: list[str]) -> list[str]:
    def option(value: str | None) -> Any:
        return jvm.scala.Option.apply(value)

    maven = jvm.org.apache.spark.util.MavenUtils
    output = jvm.java.lang.System.err
    no_exclusions = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
    settings = maven.buildIvySettings(option(None), option(str(folder)), False, output)
    jars = maven.resolveMavenCoordinates(
        ",".join(coordinates), settings, option(None), True, no_exclusions, False, output
    )
    paths: str = jars.mkString("\n")
    return paths.split("\n")


def main(folder: Path, answer: Path) -> None:
    wanted = json.load(sys.stdin)
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        found = {name: resolve(gateway.jvm, folder, coordinates) for name, coordinates in wanted.items()}
    finally:
        gateway.shutdown()
    answer.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
