"""Spark: in the driver's own process by default, a standalone cluster where one is asked for."""

import json
import sys
from pathlib import Path
from typing import Any

from typing_extensions import override

from tidemark.environment import variable_of
from tidemark.stack.files import write_whole
from tidemark.stack.http import get_json
from tidemark.stack.jars import jar_paths, pyspark_home
from tidemark.stack.ports import HOST
from tidemark.stack.service import CONSOLE_LOGGING, QUICK_START, RunTool, Service, Site

LOCAL_MASTER = "local[2]"
# A job of the stack is small and starts from cold: compiling little of it takes a third off its CPU time.
_SETTINGS = """\
spark.jars                                {jars}
spark.ui.enabled                          false
spark.driver.bindAddress                  {host}
spark.driver.host                         {host}
spark.driver.memory                       1g
spark.driver.extraJavaOptions             -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData
spark.executor.memory                     768m
spark.executor.extraJavaOptions           -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData
spark.sql.shuffle.partitions              4
spark.sql.session.timeZone                UTC
spark.hadoop.dfs.replication              1
spark.sql.warehouse.dir                   {folder}/warehouse
spark.local.dir                           {folder}/local
"""


def write_settings(site: Site) -> None:
    settings = _SETTINGS.format(
        jars=",".join(path.as_uri() for path in jar_paths("spark")), host=HOST, folder=site.home / "spark"
    )
    write_whole(_settings_folder(site) / "spark-defaults.conf", settings)
    write_whole(_settings_folder(site) / "log4j2.properties", CONSOLE_LOGGING.format(level="WARN"))


def master(site: Site) -> str:
    return f"spark://{HOST}:{site.ports['spark-master']}" if "spark-master" in site.services else LOCAL_MASTER


def exports(site: Site) -> dict[str, str]:
    # A connection whose host has a scheme of its own reaches spark-submit as it is.
    connection = {"conn_type": "spark", "host": master(site)}
    return {
        variable_of("spark_default"): json.dumps(connection),
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_CONF_DIR": str(_settings_folder(site)),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


class SparkMaster(Service):
    name = "spark-master"
    ports = ("spark-master", "spark-master-http")

    @override
    def command(self, site: Site) -> list[str]:
        return _daemon_command(site, self, "org.apache.spark.deploy.master.Master")

    @override
    def address(self, site: Site) -> str:
        return master(site)

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        status = _ask_master(site)["status"]
        return None if status == "ALIVE" else f"status ALIVE instead of {status}"


class SparkWorker(Service):
    needs = ("spark-master",)
    # A worker that finds no master asks again only after ten seconds.
    needs_health = True

    def __init__(self, number: int) -> None:
        self.name = f"spark-worker-{number}"
        self.ports = (self.name, f"{self.name}-http")

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        self._work_folder(site).mkdir(parents=True, exist_ok=True)

    @override
    def command(self, site: Site) -> list[str]:
        arguments = (
            "--cores",
            "1",
            "--memory",
            "1g",
            "--work-dir",
            str(self._work_folder(site)),
            master(site),
        )
        return _daemon_command(site, self, "org.apache.spark.deploy.worker.Worker", *arguments)

    @override
    def address(self, site: Site) -> str:
        return f"{HOST}:{site.ports[self.name]}"

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        workers = _ask_master(site)["workers"]
        has_registered = any(
            worker["port"] == site.ports[self.name] and worker["state"] == "ALIVE" for worker in workers
        )
        return None if has_registered else "its registration with the master"

    def _work_folder(self, site: Site) -> Path:
        return site.home / "spark" / self.name


def _daemon_command(site: Site, service: Service, main: str, *arguments: str) -> list[str]:
    port, web_port = (str(site.ports[name]) for name in service.ports)
    settings = ("SPARK_DAEMON_MEMORY=256m", f"SPARK_DAEMON_JAVA_OPTS=-XX:+UseSerialGC {QUICK_START}")
    program = str(pyspark_home() / "bin" / "spark-class")
    addresses = ("--host", HOST, "--port", port, "--webui-port", web_port)
    return ["env", *settings, program, main, *addresses, *arguments]


def _ask_master(site: Site) -> dict[str, Any]:
    answer: dict[str, Any] = get_json(site.ports["spark-master-http"], "/json/")
    return answer


def _settings_folder(site: Site) -> Path:
    return site.home / "spark-conf"
