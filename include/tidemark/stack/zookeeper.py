"""ZooKeeper, from the jars that PySpark ships."""

import json
import socket

from typing_extensions import override

from tidemark.environment import ZOOKEEPER, variable_of
from tidemark.stack.files import write_whole
from tidemark.stack.jars import pyspark_home
from tidemark.stack.ports import HOST
from tidemark.stack.service import CONSOLE_LOGGING, QUICK_START, RunTool, Service, Site, java_command

# A short tick lets a client ask for a session of one second, so that tests see one expire.
_SETTINGS = """\
dataDir={folder}/data
clientPort={port}
clientPortAddress={host}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr
"""
_SECURED_SETTINGS = """\
enforce.auth.enabled=true
enforce.auth.schemes=digest
"""
_USER = "tidemark"


class ZooKeeper(Service):
    name = "zookeeper"
    ports = ("zookeeper",)

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        folder = site.home / "zookeeper"
        (folder / "data").mkdir(parents=True, exist_ok=True)
        write_whole(folder / "log4j2.properties", CONSOLE_LOGGING.format(level="INFO"))
        settings = _SETTINGS.format(folder=folder, host=HOST, port=site.ports["zookeeper"])
        write_whole(folder / "zoo.cfg", settings + (_SECURED_SETTINGS if site.secured else ""))

    @override
    def command(self, site: Site) -> list[str]:
        folder = site.home / "zookeeper"
        return java_command(
            site,
            f"{folder}:{pyspark_home()}/jars/*",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(folder / "zoo.cfg"),
            memory_mb=256,
            # In KiB: a log file of 64 MiB for each start is much for a stack that lives below one folder.
            options=(QUICK_START, "-Dzookeeper.preAllocSize=4096", "-Dzookeeper.jmx.log4j.disable=true"),
        )

    @override
    def address(self, site: Site) -> str:
        return f"{HOST}:{site.ports['zookeeper']}"

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        with socket.create_connection((HOST, site.ports["zookeeper"]), timeout=5) as connection:
            connection.sendall(b"srvr")
            answer = connection.makefile("rb").read()
        return None if b"Mode:" in answer else "an answer to srvr"

    @override
    def exports(self, site: Site) -> dict[str, str]:
        connection = {
            "conn_type": "zookeeper",
            "host": HOST,
            "port": site.ports["zookeeper"],
            "extra": {"chroot": "/tidemark"},
        }
        login = {"login": _USER, "password": site.secrets.zookeeper_password} if site.secured else {}
        return {variable_of(ZOOKEEPER): json.dumps(connection | login)}
