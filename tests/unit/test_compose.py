"""docker-compose.yaml against the compose schema and against the settings that the code reads.

No engine runs here. `compose-spec.json` is the schema of the Compose Specification (Apache License 2.0,
The Compose Specification Authors), unchanged, as the PyPI package check-jsonschema 0.39.0 ships it.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

from tidemark.config import load_streams
from tidemark.environment import WEBHDFS, ZOOKEEPER, Connection, parse_connection, repository_folder, variable_of
from tidemark.kafka import KafkaCluster
from tidemark.stack import DEFAULT_SERVICES, SPARK_CLUSTER
from tidemark.stack.jars import JAR_SETS, pyspark_home
from tidemark.storage.webhdfs_calls import url_of

ROOT = repository_folder()
TEXT = (ROOT / "docker-compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

ONE_SHOT = ("airflow-init", "hdfs-init")
LONG_RUNNING = sorted(set(SERVICES) - set(ONE_SHOT))
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer")
# The service whose tasks are the drivers of the Spark jobs.
DRIVER = "scheduler"
SPARK = "spark_default"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<rest>[^}]*)\}")
_SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|FERNET_KEY")
_REQUIRED = re.compile(r"\$\{\w+:\?[^}]+\}")


def needed_connections() -> list[str]:
    streams = load_streams(ROOT / "include" / "config" / "streams.yaml").streams.values()
    return sorted({*(stream.kafka_connection for stream in streams), ZOOKEEPER, WEBHDFS, SPARK})


def connection(service: str, conn_id: str) -> Connection:
    return parse_connection(conn_id, environment(service)[variable_of(conn_id)])


def environment(service: str) -> dict[str, str]:
    found: dict[str, str] = SERVICES[service].get("environment", {})
    return found


def all_environments() -> Iterator[tuple[str, str, str]]:
    for service in SERVICES:
        for name, value in environment(service).items():
            yield service, name, value


def image_version(service: str) -> str:
    image: str = SERVICES[service]["image"]
    return image.partition(":")[2]


def version_in_jars(set_name: str, artifact: str) -> str:
    (found,) = (jar.split(":")[2] for jar in JAR_SETS[set_name] if jar.split(":")[1] == artifact)
    return found


def required_version(package: str) -> str:
    (found,) = re.findall(rf"(?m)^{package}==(\S+)$", (ROOT / "requirements.txt").read_text())
    return str(found)


def addresses_of(conn_id: str) -> list[tuple[str, int]]:
    """Host and port of each service that the connection names, as its client reads them."""
    found = connection(DRIVER, conn_id)
    if conn_id.startswith("kafka_"):
        listed = str(found.extra["bootstrap.servers"]).split(",")
        return [(host, int(port)) for host, _, port in (each.rpartition(":") for each in listed)]
    assert found.host is not None
    assert found.port is not None
    return [(found.host.removeprefix("spark://"), found.port)]


def listened_ports(service: str) -> set[int]:
    """What the service is told to listen to; ZooKeeper's image listens to its own port."""
    if service == "kafka":
        return {int(port) for port in re.findall(r"://:(\d+)", environment("kafka")["KAFKA_LISTENERS"])}
    if service == "namenode":
        http = hadoop_settings("hdfs-site")["dfs.namenode.http-address"]
        rpc = hadoop_settings("core-site")["fs.defaultFS"]
        return {int(address.rpartition(":")[2]) for address in (http, rpc)}
    if service == "spark-master":
        return {int(option(service, "--port")), int(option(service, "--webui-port"))}
    return {int(port) for port in SERVICES[service]["expose"]}


def option(service: str, name: str) -> str:
    command: list[str] = SERVICES[service]["command"]
    return command[command.index(name) + 1]


def hadoop_settings(name: str) -> dict[str, str]:
    root = ElementTree.fromstring(COMPOSE["configs"][name]["content"])
    return {entry.findtext("name", ""): entry.findtext("value", "") for entry in root}


def spark_settings() -> dict[str, str]:
    lines = COMPOSE["configs"]["spark-defaults"]["content"].splitlines()
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}


def airflow_options() -> set[str]:
    """Read from its file: importing Airflow would write a configuration into the user's home."""
    file = distribution("apache-airflow-core").locate_file("airflow/config_templates/config.yml")
    sections = yaml.safe_load(Path(str(file)).read_text())
    return {f"AIRFLOW__{section}__{name}".upper() for section, found in sections.items() for name in found["options"]}


def copied_sources() -> list[str]:
    return [source for line in re.findall(r"(?m)^COPY (.+)$", DOCKERFILE) for source in line.split()[:-1]]


def test_the_file_follows_the_compose_schema() -> None:
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    errors = jsonschema.Draft202012Validator(schema).iter_errors(COMPOSE)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_every_service_of_the_embedded_stack_is_deployed() -> None:
    assert {*DEFAULT_SERVICES, *SPARK_CLUSTER, "postgres"} == set(LONG_RUNNING)


@pytest.mark.parametrize("service", LONG_RUNNING)
def test_a_long_running_service_has_a_health_check_and_comes_back(service: str) -> None:
    assert SERVICES[service]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[service]["restart"] == "unless-stopped"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_waits_for_others_until_they_can_be_used(service: str) -> None:
    for other, wait in SERVICES[service].get("depends_on", {}).items():
        wanted = {"service_completed_successfully"} if other in ONE_SHOT else {"service_healthy"}
        # A NameNode leaves safe mode only when its DataNode has told it of its blocks.
        if (service, other) == ("datanode", "namenode"):
            wanted = {"service_started"}
        assert other in SERVICES
        assert wait["condition"] in wanted, other


def test_every_volume_is_declared_and_used() -> None:
    mounted = {mount.partition(":")[0] for found in SERVICES.values() for mount in found.get("volumes", [])}
    assert {name for name in mounted if not name.startswith("./")} == set(COMPOSE["volumes"])


def test_every_config_is_declared_and_used() -> None:
    used = {mount["source"] for found in SERVICES.values() for mount in found.get("configs", [])}
    assert used == set(COMPOSE["configs"])


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_published_on_this_machine_alone(service: str) -> None:
    for port in SERVICES[service].get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_no_two_services_publish_the_same_port() -> None:
    published = [
        _VARIABLE.sub(lambda found: found["rest"].removeprefix(":-"), port).split(":")[1]
        for found in SERVICES.values()
        for port in found.get("ports", [])
    ]
    assert len(set(published)) == len(published)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_has_a_whole_version_and_no_registry(service: str) -> None:
    assert re.fullmatch(r"[a-z]+(/[a-z]+)?:\d+\.\d+(\.\d+)?(-[a-z]+)?", SERVICES[service]["image"])


@pytest.mark.parametrize("service", ["airflow-init", *AIRFLOW, *SPARK_CLUSTER])
def test_our_image_has_the_version_of_the_project(service: str) -> None:
    assert SERVICES[service]["image"] == f"{PROJECT['name']}:{PROJECT['version']}"
    assert SERVICES[service]["build"] == "."


def test_kafka_is_the_version_that_is_tested() -> None:
    assert image_version("kafka") == version_in_jars("kafka", "kafka_2.13")


@pytest.mark.parametrize("service", ["namenode", "datanode", "hdfs-init"])
def test_hadoop_is_the_version_that_is_tested(service: str) -> None:
    assert image_version(service) == version_in_jars("hdfs", "hadoop-hdfs")


def test_zookeeper_is_the_version_that_is_tested() -> None:
    assert (pyspark_home() / "jars" / f"zookeeper-{image_version('zookeeper')}.jar").exists()


def test_the_jars_of_spark_have_the_version_of_pyspark() -> None:
    wanted = {required_version("pyspark"), required_version("pyspark-client"), version("pyspark")}
    assert {coordinate.split(":")[2] for coordinate in JAR_SETS["spark"]} == wanted


@pytest.mark.parametrize("service", ["airflow-init", *AIRFLOW])
def test_every_airflow_setting_is_an_option_of_the_installed_airflow(service: str) -> None:
    settings = {name for name in environment(service) if name.startswith("AIRFLOW__")}
    assert settings
    assert settings - airflow_options() == set()


@pytest.mark.parametrize("service", AIRFLOW)
def test_every_airflow_service_has_the_same_settings(service: str) -> None:
    assert environment(service) == environment("api-server")


def test_every_tidemark_variable_is_read_by_the_code() -> None:
    read = set(re.findall(r'"(TIDEMARK_\w+)"', (ROOT / "include" / "tidemark" / "environment.py").read_text()))
    used = {name for _, name, _ in all_environments() if name.startswith("TIDEMARK_")}
    assert used
    assert used - read == set()


def test_the_streams_file_is_mounted_where_it_is_looked_for() -> None:
    given = Path(environment(DRIVER)["TIDEMARK_STREAMS"])
    sources = {
        target: source
        for source, target, *_ in (mount.split(":") for mount in SERVICES[DRIVER]["volumes"])
        if source.startswith("./")
    }
    assert (ROOT / sources[str(given.parent)] / given.name).exists()


def test_dags_and_plugins_are_looked_for_where_the_image_has_them() -> None:
    (folder,) = re.findall(r"(?m)^WORKDIR (\S+)$", DOCKERFILE)
    assert environment(DRIVER)["AIRFLOW__CORE__DAGS_FOLDER"] == f"{folder}/dags"
    assert environment(DRIVER)["AIRFLOW__CORE__PLUGINS_FOLDER"] == f"{folder}/plugins"


@pytest.mark.parametrize("conn_id", needed_connections())
@pytest.mark.parametrize("service", AIRFLOW)
def test_every_connection_that_the_streams_need_is_there(service: str, conn_id: str) -> None:
    assert connection(service, conn_id).conn_id == conn_id


def test_no_connection_is_there_that_nobody_asks_for() -> None:
    given = {name for _, name, _ in all_environments() if name.startswith("AIRFLOW_CONN_")}
    assert given == {variable_of(conn_id) for conn_id in needed_connections()}


@pytest.mark.parametrize("conn_id", needed_connections())
def test_a_connection_leads_to_a_service_and_a_port_that_it_listens_to(conn_id: str) -> None:
    for host, port in addresses_of(conn_id):
        assert SERVICES[host]["hostname"] == host
        assert str(port) in SERVICES[host]["expose"]
        assert port in listened_ports(host)


def test_the_librarys_clients_take_the_connections() -> None:
    assert url_of(connection(DRIVER, WEBHDFS)) == "http://namenode:9870"
    for conn_id in needed_connections():
        if conn_id.startswith("kafka_"):
            KafkaCluster(connection(DRIVER, conn_id))


def test_the_file_system_of_the_connection_is_that_of_the_namenode() -> None:
    named = connection(DRIVER, WEBHDFS).extra["namenode"]
    assert named == hadoop_settings("core-site")["fs.defaultFS"]
    assert hadoop_settings("hdfs-site")["dfs.datanode.hostname"] == SERVICES["datanode"]["hostname"]


def test_the_login_of_the_connection_is_the_user_that_runs_hdfs() -> None:
    assert connection(DRIVER, WEBHDFS).login == SERVICES["namenode"]["user"]


@pytest.mark.parametrize("node", ["namenode", "datanode"])
def test_hdfs_keeps_its_files_in_a_volume(node: str) -> None:
    key = {"namenode": "dfs.namenode.name.dir", "datanode": "dfs.datanode.data.dir"}[node]
    folder = hadoop_settings("hdfs-site")[key].removeprefix("file://")
    assert SERVICES[node]["volumes"] == [f"{node}:{folder}"]
    assert folder in SERVICES["hdfs-init"]["entrypoint"]


def test_kafka_keeps_its_records_in_a_volume() -> None:
    assert SERVICES["kafka"]["volumes"] == [f"kafka:{environment('kafka')['KAFKA_LOG_DIRS']}"]


def test_executors_can_call_the_driver_back() -> None:
    assert spark_settings()["spark.driver.host"] == SERVICES[DRIVER]["hostname"] == DRIVER
    assert spark_settings()["spark.driver.bindAddress"] == "0.0.0.0"
    assert SERVICES[DRIVER]["configs"][0]["target"].startswith(re.findall(r"SPARK_CONF_DIR=(\S+)", DOCKERFILE)[0])


@pytest.mark.parametrize("worker", [name for name in SPARK_CLUSTER if name != "spark-master"])
def test_a_worker_registers_under_its_own_name_with_the_master_of_the_connection(worker: str) -> None:
    ((host, port),) = addresses_of(SPARK)
    assert SERVICES[worker]["command"][-1] == f"spark://{host}:{port}"
    assert option(worker, "--host") == SERVICES[worker]["hostname"] == worker
    assert SERVICES[worker]["healthcheck"]["test"][-1] == worker


def test_the_parts_of_airflow_find_the_server_and_its_database() -> None:
    settings = environment("api-server")
    server = f"api-server:{settings['AIRFLOW__API__PORT']}"
    assert settings["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"http://{server}/execution/"
    assert f"http://{server}/" in SERVICES["scheduler"]["healthcheck"]["test"][3]
    database = environment("postgres")
    address = f"@postgres:{SERVICES['postgres']['expose'][0]}/{database['POSTGRES_DB']}"
    assert settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].endswith(address)
    assert f"//{database['POSTGRES_USER']}:" in settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]


def test_the_image_has_the_drivers_of_the_database() -> None:
    scheme = environment("api-server")["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].partition(":")[0]
    assert scheme == "postgresql+psycopg2"
    assert re.search(r" asyncpg==\d\S* psycopg2-binary==\d\S*$", DOCKERFILE, re.MULTILINE)


def test_the_password_file_is_written_where_the_server_looks_for_it() -> None:
    file = environment("api-server")["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
    (script,) = SERVICES["airflow-init"]["command"]
    assert f"> {file}\n" in script
    user, _, _ = environment("api-server")["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].partition(":")
    assert f'{{"{user}": os.environ["AIRFLOW_ADMIN_PASSWORD"]}}' in script
    assert f"airflow-login:{Path(file).parent}" in SERVICES["api-server"]["volumes"]


def test_a_secret_has_no_default_anywhere() -> None:
    for found in _VARIABLE.finditer(TEXT):
        if re.search(r"PASSWORD|SECRET|TOKEN|KEY", found["name"]):
            assert _REQUIRED.fullmatch(found[0]), found[0]


def test_a_secret_is_never_written_into_the_file() -> None:
    for service, name, value in all_environments():
        if _SECRET.search(name) and not name.endswith("_FILE"):
            assert _REQUIRED.fullmatch(value), (service, name)
        for password in re.findall(r"//[^/\s:]+:([^@\s]*|\$\{[^}]*\})@", value):
            assert _REQUIRED.fullmatch(password), (service, name)
    for conn_id in needed_connections():
        assert connection(DRIVER, conn_id).password is None


def test_the_admins_password_is_known_to_nobody_but_its_writer() -> None:
    knowing = {service for service, _, value in all_environments() if "AIRFLOW_ADMIN_PASSWORD" in value}
    assert knowing == {"airflow-init"}


def test_the_example_lists_every_required_variable_without_a_value() -> None:
    required = {found["name"] for found in _VARIABLE.finditer(TEXT) if found["rest"].startswith(":?")}
    lines = (ROOT / ".env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert given == dict.fromkeys(required, "")


def test_the_example_says_how_each_value_is_made() -> None:
    blocks = (ROOT / ".env.example").read_text().strip().split("\n\n")
    for block in blocks:
        if not block.splitlines()[-1].startswith("#"):
            assert block.startswith("# openssl rand "), block


@pytest.mark.parametrize("source", copied_sources())
def test_what_the_image_copies_exists_and_is_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_image_has_the_folders_that_the_code_looks_for() -> None:
    assert {"dags", "include", "jobs", "plugins"} <= set(copied_sources())


def test_the_image_has_the_python_of_the_project() -> None:
    (found,) = re.findall(r"(?m)^FROM python:(\d+\.\d+)-slim-bookworm$", DOCKERFILE)
    assert PROJECT["requires-python"].startswith(f">={found},")
    assert f"/python{found}/" in DOCKERFILE


def test_the_image_does_not_run_as_root() -> None:
    (user,) = re.findall(r"(?m)^USER (\S+)$", DOCKERFILE)
    assert user != "root"
    assert f"useradd --uid 10001 --create-home {user}" in DOCKERFILE
