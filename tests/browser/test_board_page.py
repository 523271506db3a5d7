"""The board's page in a real Chromium: `make test-browser`, which needs one (docs/adr/0023)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.board import FIRST, FOURTH, MARKUP, SECOND, THIRD, begin_run, fill
from tests.browser.chromium import ALT, CTRL, Page, open_browser
from tests.rights import NARROW, THEIRS, token_of
from tests.waiting import wait_until

from tidemark.config import load_stream
from tidemark.demo.airflow import AirflowClient
from tidemark.stack import Stack

LOADED = "document.documentElement.dataset.loaded > 0"
INNER = "document.querySelector('iframe')?.contentDocument"
ACTIVE = "document.activeElement.dataset.hour"


@pytest.fixture(scope="session")
def server(airflow_stack: Stack, streams_file: Path) -> Stack:
    login = airflow_stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, airflow_stack.environment())
    airflow.wait_for_dags((f"ingest_{THEIRS}",))
    fill(load_stream(streams_file, THEIRS), airflow_stack)
    begin_run(airflow_stack, f"ingest_{THEIRS}", FIRST)
    return airflow_stack


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For who wants to look: pytest keeps the folders of its last three runs."""
    return tmp_path_factory.mktemp("pictures", numbered=False)


@pytest.fixture
def page(server: Stack, tmp_path: Path) -> Iterator[Page]:
    with open_browser(tmp_path) as page:
        page.log_in(server.login().address, token_of(server, NARROW))
        yield page


def open_hour(page: Page, server: Stack, hour: object) -> None:
    page.open(f"{server.login().address}/readiness/#stream={THEIRS}&days=30&hour={hour}")
    page.wait_for(LOADED)
    page.wait_for("document.getElementById('detail').dataset.shows")


def open_in_airflow(page: Page, server: Stack, state: str) -> None:
    page.open(f"{server.login().address}/plugin/readiness{state}")
    page.wait_for(f"{INNER}?.documentElement?.dataset.loaded > 0")


def labelled(page: Page, hour: object) -> str:
    script = f"document.querySelector('[data-hour=\"{hour}\"]').getAttribute('aria-label')"
    return str(page.run(script))


def test_each_hour_says_its_state_in_words_and_a_chosen_one_says_why(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    assert labelled(page, FIRST).endswith("UTC: ready and empty")
    assert labelled(page, SECOND).endswith("UTC: ready, revision 1, with an accepted gap")
    assert labelled(page, FOURTH).endswith("UTC: blocked: should be ready")
    text = page.run("document.getElementById('detail').textContent")
    assert f"{THEIRS}/{FIRST}: ready, revision 1" in text
    assert "Revisions: 1" in text
    assert page.run("document.getElementById('problem').hidden")


def test_timelines_are_a_graph_that_is_also_told_in_words(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    graph = "document.querySelector('#timelines svg')"
    assert page.run(f"{graph}.querySelectorAll('rect').length") == 2
    assert page.run(f"{graph}.getAttribute('aria-label')").startswith("Timelines: 1: main/seen, since ")


def test_it_refreshes_itself_and_leaves_focus_and_what_did_not_change_where_it_was(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    page.run("kept = [document.querySelector('#detail h2'), document.querySelector('#timelines svg')]")
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


def test_it_is_dark_where_the_user_wants_it_dark(page: Page, server: Stack, pictures: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.resize(1440, 900)
    found = {}
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        open_hour(page, server, FIRST)
        page.picture(pictures / f"{scheme}.png")
        found[scheme] = page.run(background)
    assert found == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}


def test_an_hour_that_cannot_be_told_says_so_and_does_not_wait_for_ever(page: Page, server: Stack) -> None:
    page.open(f"{server.login().address}/readiness/#stream={THEIRS}&hour=yesterday")
    page.wait_for(LOADED)
    assert "wanted UTC" in page.run("document.querySelector('#detail .wrong').textContent")
    assert "Asking" not in page.run("document.getElementById('detail').textContent")


def test_a_slow_answer_for_other_days_does_not_paint_over_those_that_are_chosen(page: Page, server: Stack) -> None:
    page.open(f"{server.login().address}/readiness/#stream={THEIRS}")
    page.wait_for(LOADED)
    page.run(
        "asked = window.fetch, window.fetch = async (path, options) => {"
        " if (path.endsWith('days=60')) await new Promise((go) => setTimeout(go, 4000));"
        " const answer = await asked(path, options);"
        " if (path.endsWith('days=60')) setTimeout(() => { window.isLate = true }, 500);"
        " return answer; }, refresh(), null"
    )
    page.run("location.hash = location.hash + '&days=14', null")
    page.wait_for("window.isLate")
    assert page.run("document.querySelectorAll('th[scope=row]').length") == 14


def test_a_grid_that_is_made_anew_keeps_the_focus_on_its_hour(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    page.run(f"document.querySelector('[data-hour=\"{FIRST}\"]').focus()")
    page.run("location.hash = location.hash.replace('days=30', 'days=14'), null")
    page.wait_for("document.querySelectorAll('th[scope=row]').length === 14")
    assert page.run(ACTIVE) == str(FIRST)


def test_keys_of_the_browser_stay_with_the_browser(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    page.run(f"document.querySelector('[data-hour=\"{SECOND}\"]').focus()")
    page.run("document.addEventListener('keydown', (event) => { taken = event.defaultPrevented }), null")
    page.press("ArrowLeft", ALT)
    assert (page.run("taken"), page.run(ACTIVE)) == (False, str(SECOND))
    page.press("ArrowLeft")
    assert (page.run("taken"), page.run(ACTIVE)) == (True, str(FIRST))


def test_a_screen_reader_is_told_the_choice_and_not_each_refresh(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    assert page.run("document.querySelectorAll('[aria-live]').length") == 0
    assert page.run("[...document.querySelectorAll('[role=status]')].map((found) => found.id)") == ["told"]
    assert page.run("document.getElementById('told').textContent") == f"{THEIRS}/{FIRST}: ready, revision 1"
    page.run(
        "told = 0, new MutationObserver(() => { told += 1 })"
        ".observe(document.getElementById('told'), { childList: true, characterData: true, subtree: true })"
    )
    page.run("refresh()")
    assert page.run("told") == 0


def test_what_the_charts_say_is_also_there_in_numbers(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    # The hours with flags are older than the charts' seven days: they are asked for more.
    page.run(
        "asked = window.fetch, window.fetch = (path, options) => asked(path.replace('flags?days=7', 'flags?days=92'),"
        " options), refresh()"
    )
    page.run("document.querySelector('#charts summary').click()")
    rows = page.run("[...document.querySelectorAll('#charts tbody tr')].map((row) => row.cells[0].textContent)")
    assert rows == [str(SECOND), str(FIRST)]
    assert page.run("document.querySelector('#charts details').open")


def test_airflow_shows_it_in_its_own_page_and_address(page: Page, server: Stack, pictures: Path) -> None:
    page.resize(1440, 900)
    open_in_airflow(page, server, f"?from=mail#stream={THEIRS}&days=30")
    page.run(f"{INNER}.querySelector('[data-hour=\"{SECOND}\"]').click()")
    page.wait_for(f"location.hash.includes({json.dumps(THEIRS)}) && location.hash.includes('hour=')")
    # Airflow puts the path of the page in the frame behind its own.
    assert page.run("location.pathname") == "/plugin/readiness/readiness/"
    page.picture(pictures / "in-airflow.png")


@pytest.mark.parametrize("way", ["h1 a", "#stream"])
def test_the_way_back_to_all_streams_works_inside_airflow_too(
    page: Page, server: Stack, pictures: Path, way: str
) -> None:
    page.resize(1440, 900)
    open_in_airflow(page, server, f"#stream={THEIRS}")
    assert page.run(f"{INNER}.getElementById('all').hidden")
    if way == "#stream":
        page.run(f"chosen = {INNER}.getElementById('stream'), chosen.value = '', null")
        page.run("chosen.dispatchEvent(new Event('change'))")
    else:
        page.run(f"{INNER}.querySelector('{way}').click()")
    page.wait_for(f"!{INNER}.getElementById('all').hidden && {INNER}.querySelectorAll('#all table').length > 0")
    assert page.run(f"{INNER}.getElementById('one').hidden")
    assert page.run("location.hash") == ""
    page.picture(pictures / "overview.png")
    page.run(f"location.hash = '#stream={THEIRS}', null")
    page.wait_for(f"!{INNER}.getElementById('one').hidden")


def test_it_changes_to_dark_with_airflow_at_once(page: Page, server: Stack) -> None:
    open_in_airflow(page, server, "")
    for theme, other in (("dark", "light"), ("light", "dark")):
        page.run(f"document.documentElement.classList.remove('{other}')")
        page.run(f"document.documentElement.classList.add('{theme}')")
        assert page.run(f"{INNER}.documentElement.dataset.theme") == theme


def test_a_link_to_a_mapped_tasks_log_leads_to_it_and_ctrl_click_to_a_tab_of_its_own(page: Page, server: Stack) -> None:
    page.resize(1440, 1400)
    open_in_airflow(page, server, f"#stream={THEIRS}&hour={FIRST}")
    link = (
        f"[...({INNER}?.querySelectorAll('#detail a') ?? [])].find((link) => link.textContent === 'log of announce 0')"
    )
    page.wait_for(f"Boolean({link})")
    page.run(f"{link}.scrollIntoView({{block: 'center'}})")
    frame, place = (
        page.run(f"(({{x, y, height}}) => [x, y, height])({found}.getBoundingClientRect())")
        for found in ("document.querySelector('iframe')", link)
    )
    page.click(frame[0] + place[0] + 5, frame[1] + place[1] + place[2] / 2, CTRL)
    wait_until(lambda: len(page.addresses()) == 2, "the log is open in a tab of its own")
    assert page.run("location.pathname").startswith("/plugin/readiness")
    page.run(f"{link}.click()")
    page.wait_for("location.pathname.endsWith('/tasks/announce/mapped/0')")


def test_it_asks_nobody_outside(page: Page, server: Stack) -> None:
    open_hour(page, server, FIRST)
    hosts = page.run(
        "[...new Set(performance.getEntriesByType('resource').map((found) => new URL(found.name).origin))]"
    )
    assert hosts == [server.login().address]
