"""HDFS: one NameNode and one DataNode."""

import json
import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from typing_extensions import override

from tidemark.environment import variable_of
from tidemark.stack.files import write_whole
from tidemark.stack.http import get_json
from tidemark.stack.jars import class_path
from tidemark.stack.ports import HOST
from tidemark.stack.service import QUICK_START, RunTool, Service, Site, java_command

_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_LOGGING = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.out
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
log4j.logger.BlockStateChange=WARN
log4j.logger.org.apache.hadoop.hdfs.StateChange=WARN
log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=WARN
log4j.logger.org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace=WARN
"""


class NameNode(Service):
    name = "namenode"
    ports = ("namenode-http", "namenode")

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        folder = _folder(site)
        _write_settings(site)
        if not (folder / "formatted").exists():
            shutil.rmtree(folder / "name", ignore_errors=True)
            shutil.rmtree(folder / "data", ignore_errors=True)
            arguments = ("-format", "-nonInteractive")
            run("namenode-format", _command(site, _NAMENODE, *arguments, options=(QUICK_START,)))
            (folder / "formatted").touch()

    @override
    def command(self, site: Site) -> list[str]:
        return _command(site, _NAMENODE, options=(QUICK_START,))

    @override
    def address(self, site: Site) -> str:
        return f"http://{HOST}:{site.ports['namenode-http']}"

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        info = _bean(site.ports["namenode-http"], "NameNode", "NameNodeInfo")
        # Attributes are missing while the node loads its files.
        if info.get("Safemode") != "":
            return "the end of safe mode"
        if "datanode" in site.services and not json.loads(info["LiveNodes"]):
            return "a live DataNode"
        return None

    @override
    def exports(self, site: Site) -> dict[str, str]:
        connection = {
            "conn_type": "webhdfs",
            "host": HOST,
            "port": site.ports["namenode-http"],
            "login": _user(),
        }
        return {
            variable_of("webhdfs_default"): json.dumps(connection),
            "TIDEMARK_HDFS": _file_system(site),
        }


class DataNode(Service):
    name = "datanode"
    ports = ("datanode-http", "datanode", "datanode-ipc")
    needs = ("namenode",)

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        _write_settings(site)

    @override
    def command(self, site: Site) -> list[str]:
        return _command(site, _DATANODE)

    @override
    def address(self, site: Site) -> str:
        return f"http://{HOST}:{site.ports['datanode-http']}"

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        # The NameNode counts a DataNode that ended as live for a while: ask this one.
        info = _bean(site.ports["datanode-http"], "DataNode", "DataNodeInfo")
        actors = json.loads(info.get("BPServiceActorInfo", "[]"))
        has_registered = any(actor["ActorState"] == "RUNNING" for actor in actors)
        return None if has_registered else "its registration with the NameNode"


def _write_settings(site: Site) -> None:
    folder = _folder(site)
    # Looked up on the class path by both nodes, though their pages are not shipped in the jars.
    for webapp in ("hdfs", "datanode"):
        (folder / "webapps" / webapp).mkdir(parents=True, exist_ok=True)
    write_whole(folder / "conf" / "log4j.properties", _LOGGING)
    write_whole(folder / "conf" / "core-site.xml", _to_xml(_core_settings(site)))
    write_whole(folder / "conf" / "hdfs-site.xml", _to_xml(_hdfs_settings(site)))


def _core_settings(site: Site) -> dict[str, str]:
    return {
        "fs.defaultFS": _file_system(site),
        "hadoop.tmp.dir": str(_folder(site) / "tmp"),
        "hadoop.http.staticuser.user": _user(),
        # A DataNode that starts before its NameNode asks again soon.
        "ipc.client.connect.retry.interval": "200",
        "ipc.client.connect.max.retries": "50",
    }


def _hdfs_settings(site: Site) -> dict[str, str]:
    folder = _folder(site)
    addresses = {name: f"{HOST}:{port}" for name, port in site.ports.items()}
    return {
        "dfs.replication": "1",
        "dfs.webhdfs.enabled": "true",
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.namenode.rpc-address": addresses["namenode"],
        "dfs.namenode.http-address": addresses["namenode-http"],
        "dfs.namenode.handler.count": "5",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        # With the heartbeat below, a DataNode that ended counts as dead after 12 seconds, not 10 minutes.
        "dfs.namenode.heartbeat.recheck-interval": "1000",
        "dfs.heartbeat.interval": "1",
        "dfs.blockreport.initialDelay": "0",
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.datanode.hostname": HOST,
        "dfs.datanode.handler.count": "4",
        "dfs.client.block.write.replace-datanode-on-failure.enable": "false",
        # Closing a small file over WebHDFS otherwise sleeps 400 ms in the DataNode.
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20",
        **{
            key: addresses[name]
            for key, name in (
                ("dfs.datanode.address", "datanode"),
                ("dfs.datanode.http.address", "datanode-http"),
                ("dfs.datanode.ipc.address", "datanode-ipc"),
            )
            if name in addresses
        },
    }


def _to_xml(settings: Mapping[str, str]) -> str:
    root = ElementTree.Element("configuration")
    for name, value in settings.items():
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = value
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _command(site: Site, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    folder = _folder(site)
    return java_command(
        site,
        f"{folder / 'conf'}:{folder}:{class_path('hdfs')}",
        main,
        *arguments,
        memory_mb=512,
        options=("--add-opens=java.base/java.lang=ALL-UNNAMED", *options),
    )


def _bean(port: int, service: str, name: str) -> dict[str, Any]:
    """Without its bean a node is still starting."""
    answer = get_json(port, f"/jmx?qry=Hadoop:service={service},name={name}")
    if not answer["beans"]:
        raise ConnectionError(f"port {port} has no {name} yet")
    bean: dict[str, Any] = answer["beans"][0]
    return bean


def _file_system(site: Site) -> str:
    return f"hdfs://{HOST}:{site.ports['namenode']}"


def _folder(site: Site) -> Path:
    return site.home / "hdfs"


def _user() -> str:
    """Who starts the NameNode is the superuser of its files."""
    return pwd.getpwuid(os.getuid()).pw_name
