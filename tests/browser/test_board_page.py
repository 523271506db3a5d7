"""The board's page in a real Chromium: `make test-browser`, which needs one (docs/adr/0023)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.board import FIRST, MARKUP, SECOND, THIRD, fill
from tests.browser.chromium import Page, open_browser
from tests.rights import NARROW, THEIRS, token_of

from tidemark.config import load_stream
from tidemark.demo.airflow import AirflowClient
from tidemark.stack import Stack

LOADED = "document.documentElement.dataset.loaded > 0"


@pytest.fixture(scope="session")
def server(airflow_stack: Stack, streams_file: Path) -> Stack:
    login = airflow_stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, airflow_stack.environment())
    airflow.wait_for_dags((f"ingest_{THEIRS}",))
    fill(load_stream(streams_file, THEIRS), airflow_stack)
    return airflow_stack


@pytest.fixture
def page(server: Stack, tmp_path: Path) -> Iterator[Page]:
    with open_browser(tmp_path) as page:
        page.log_in(server.login().address, token_of(server, NARROW))
        yield page


def open_hour(page: Page, server: Stack, hour: object) -> None:
    page.open(f"{server.login().address}/readiness/#stream={THEIRS}&days=30&hour={hour}")
    page.wait_for(LOADED)
    page.wait_for("document.getElementById('detail').dataset.shows")


def labelled(page: Page, hour: object) -> str:
    script = f"document.querySelector('[data-hour=\"{hour}\"]').getAttribute('aria-label')"
    return str(page.run(script))


def test_each_hour_says_its_state_in_words_and_a_chosen_one_says_why(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    assert labelled(page, FIRST).endswith("UTC: ready and empty")
    assert labelled(page, SECOND).endswith("UTC: ready, revision 1, with an accepted gap")
    assert labelled(page, THIRD).endswith("UTC: blocked: should be ready")
    text = page.run("document.getElementById('detail').textContent")
    assert f"{THEIRS}/{FIRST}: ready, revision 1" in text
    assert "Revisions: 1" in text
    assert page.run("document.getElementById('problem').hidden")


def test_timelines_are_a_graph_that_is_also_told_in_words(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    graph = "document.querySelector('#shards svg')"
    assert page.run(f"{graph}.querySelectorAll('rect').length") == 2
    assert page.run(f"{graph}.getAttribute('aria-label')").startswith("Timelines: 1: main/seen, since ")


def test_it_refreshes_itself_and_leaves_focus_and_what_did_not_change_where_it_was(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    page.run("kept = [document.querySelector('#detail h2'), document.querySelector('#shards svg')]")
    page.run(f"document.querySelector('[data-hour=\"{SECOND}\"]').focus()")
    before = page.run("Number(document.documentElement.dataset.loaded)")
    page.wait_for(f"document.documentElement.dataset.loaded > {before}")
    assert page.run("kept.every((node) => node.isConnected)")
    assert page.run("document.activeElement.dataset.hour") == str(SECOND)


def test_arrow_keys_walk_the_grid_enter_chooses_and_the_address_keeps_it(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    page.run(f"document.querySelector('[data-hour=\"{FIRST}\"]').focus()")
    page.press("ArrowRight")
    assert page.run("document.activeElement.dataset.hour") == str(SECOND)
    page.press("ArrowRight")
    assert page.run("document.activeElement.dataset.hour") == str(THIRD)
    page.press("Enter")
    page.wait_for(f"document.getElementById('detail').dataset.shows === '{THIRD}'")
    assert f"hour={THIRD}" in page.run("decodeURIComponent(location.hash)")
    assert page.run("document.querySelectorAll('td[tabindex=\"0\"]').length") == 1
    assert page.run("document.querySelector('[aria-selected]').dataset.hour") == str(THIRD)


def test_markup_in_names_and_reasons_is_shown_as_text(page: Page, server: Stack) -> None:
    open_hour(page, server, SECOND)
    for place in ("summary", "detail"):
        assert MARKUP in page.run(f"document.getElementById('{place}').textContent"), place
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.title") == "Readiness"


def test_it_is_dark_where_the_user_wants_it_dark(page: Page, server: Stack) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.prefer("light")
    open_hour(page, server, FIRST)
    light = page.run(background)
    page.prefer("dark")
    assert (light, page.run(background)) == ("rgb(255, 255, 255)", "rgb(22, 24, 29)")


def test_airflow_shows_it_in_its_own_page_and_address(page: Page, server: Stack) -> None:
    page.open(f"{server.login().address}/plugin/readiness#stream={THEIRS}&days=30")
    inner = "document.querySelector('iframe')?.contentDocument"
    page.wait_for(f"{inner}?.documentElement.dataset.loaded > 0")
    page.run(f"{inner}.querySelector('[data-hour=\"{SECOND}\"]').click()")
    page.wait_for(f"location.hash.includes({json.dumps(THEIRS)}) && location.hash.includes('hour=')")
    # Airflow puts the path of the page in the frame behind its own.
    assert page.run("location.pathname") == "/plugin/readiness/readiness/"


def test_it_asks_nobody_outside(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    hosts = page.run(
        "[...new Set(performance.getEntriesByType('resource').map((found) => new URL(found.name).origin))]"
    )
    assert hosts == [server.login().address]
