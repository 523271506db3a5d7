"""docs/monitoring says what the code sends: no name that is not sent, and none left out."""

import json
import re
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import promql_parser
import pytest
import yaml
from tests.statsd import mapped

from tidemark.environment import repository_folder
from tidemark.metrics import METRICS, PREFIX, Kind, Metric

FOLDER = repository_folder() / "docs" / "monitoring"
AIRFLOWS_OWN = {"airflow_scheduler_heartbeat_total"}


def prometheus_name(metric: Metric) -> str:
    return f"airflow_{PREFIX}_{metric.name}{'_total' if metric.kind is Kind.COUNTER else ''}"


SENT = {prometheus_name(metric): metric for metric in METRICS}


def read_text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def names_in(query: str) -> set[str]:
    """The metrics that a PromQL expression asks for. Raise ValueError unless it is one."""
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> bool:
        selector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(selector, promql_parser.VectorSelector):
            found.add(str(selector.name))
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(read_text("rules.yml"))["groups"] for rule in group["rules"]]


def row_of(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in ("stream", *metric.labels))
    cells = (f"`{PREFIX}.{metric.name}`", metric.kind, metric.unit, labels, metric.meaning, metric.sent)
    return f"| {' | '.join(cells)} |"


def test_the_page_lists_every_metric_as_the_code_has_it_and_no_other() -> None:
    rows = [line for line in read_text("metrics.md").splitlines() if line.startswith(f"| `{PREFIX}.")]
    assert rows == [row_of(metric) for metric in METRICS]


def test_the_dashboard_shows_every_metric_and_asks_for_no_other() -> None:
    dashboard = json.loads(read_text("dashboard.json"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert set().union(*map(names_in, queries)) == set(SENT)
    assert all('stream=~"$stream"' in query for query in queries)
    (stream,) = [variable for variable in dashboard["templating"]["list"] if variable["name"] == "stream"]
    asked = re.fullmatch(r"label_values\((\w+), stream\)", stream["query"]["query"])
    assert asked is not None
    assert asked[1] in SENT


def test_each_alert_asks_for_what_is_sent_and_says_whose_it_is() -> None:
    asked = set().union(*(names_in(rule["expr"]) for rule in rules()))
    assert asked - set(SENT) == AIRFLOWS_OWN
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        is_of_a_stream = names_in(rule["expr"]) <= set(SENT)
        assert ("{{ $labels.stream }}" in rule["annotations"]["summary"]) == is_of_a_stream, rule


def test_there_is_an_alert_for_all_that_somebody_has_to_be_woken_for_and_the_page_names_each() -> None:
    by_metric = {name: rule["alert"] for rule in rules() for name in names_in(rule["expr"])}
    for wanted in ("due_timestamp_seconds", "gap_hours", "grown_records", "bad_lines_total", "skewed_lines_total"):
        assert f"airflow_{PREFIX}_{wanted}" in by_metric
    assert set(by_metric) >= AIRFLOWS_OWN
    page = re.findall(r"^\| `(\w+)` \| ", read_text("metrics.md"), re.MULTILINE)
    assert [name for name in page if name[0].isupper()] == [rule["alert"] for rule in rules()]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_mapping_gives_plain_statsd_the_names_and_labels_of_the_rules(metric: Metric) -> None:
    values = ["clicks-1_a", *("consume" for _ in metric.labels)]
    name, labels = mapped(".".join(["airflow", PREFIX, metric.name, *values]), metric.kind)
    assert SENT[name] == metric
    assert labels == dict(zip(("stream", *metric.labels), values, strict=True))


def test_the_mapping_names_airflows_own_heartbeat_as_the_rules_do() -> None:
    assert mapped("airflow.scheduler_heartbeat", Kind.COUNTER) == (*AIRFLOWS_OWN, {})


@pytest.fixture
def page(tmp_path: Path) -> str:
    """Its folders are the test's, where `tidemark` ends with the code of its environment."""
    (tmp_path / "tidemark").write_text("#!/bin/sh\necho told\nexit $CODE\n")
    (tmp_path / "tidemark").chmod(0o755)
    (tmp_path / "env").touch()
    page = read_text("metrics.md")
    return page.replace("/opt/tidemark/bin", str(tmp_path)).replace("/etc/tidemark", str(tmp_path))


def run(script: str, code: int) -> tuple[int, str]:
    done = subprocess.run(["sh", "-c", script], env={"CODE": str(code)}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_crontab_of_the_page_prints_only_what_somebody_should_read(page: str) -> None:
    (line,) = re.findall(r"^    \*/10 \* \* \* \* (.*)$", page, re.MULTILINE)
    assert [run(line, code)[1] for code in (0, 1, 3)] == ["", "told\n", "told\n"]


def test_the_nagios_plugin_of_the_page_is_critical_unless_all_is_well_or_zookeeper_cannot_be_asked(page: str) -> None:
    (script,) = re.findall(r"^    #!/bin/sh\n((?:    .*\n)+)", page, re.MULTILINE)
    assert [run(dedent(script), code) for code in (0, 1, 2, 3)] == [(code, "told\n") for code in (0, 2, 2, 3)]
    assert "command_line /usr/local/lib/nagios/plugins/check_tidemark" in page
