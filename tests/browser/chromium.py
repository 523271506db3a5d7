"""A real Chromium without a window, driven by its own protocol: there is no driver to install."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from websockets.sync.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome")


ALT, CTRL = 1, 2


class Page:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0

    def send(self, method: str, **parameters: object) -> Any:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._connection.recv(timeout=60))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def log_in(self, address: str, token: str) -> None:
        """As Airflow's own login page leaves it."""
        self.send("Network.setCookie", name="_token", value=token, url=address)

    def open(self, address: str) -> None:
        self.send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def wait_for(self, script: str) -> None:
        wait_until(lambda: bool(self.run(script)), f"the page has {script}", within_s=120)

    def press(self, key: str, modifiers: int = 0) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers)

    def click(self, x: float, y: float, modifiers: int = 0) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, modifiers=modifiers)

    def addresses(self) -> list[str]:
        """Of all that is open in the browser."""
        targets = self.send("Target.getTargets")["targetInfos"]
        return [target["url"] for target in targets if target["type"] == "page"]

    def prefer(self, scheme: str) -> None:
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


def find_chromium() -> str:
    """Fails where there is none: a test that skips itself tests nothing."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    assert found, f"none of {', '.join(_NAMES)} is installed; on Debian: apt-get install chromium"
    return found


@contextmanager
def open_browser(folder: Path) -> Iterator[Page]:
    command = [
        find_chromium(),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
    ]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with connect(_debugger_of(folder), max_size=None) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        process.wait(30)


def _debugger_of(folder: Path) -> str:
    ports = folder / "DevToolsActivePort"
    wait_until(lambda: ports.exists() and ports.read_text().count("\n") >= 1, "Chromium listens")
    port = ports.read_text().splitlines()[0]
    deadline = time.monotonic() + 60
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        if pages:
            return str(pages[0]["webSocketDebuggerUrl"])
        assert time.monotonic() < deadline, "Chromium opened no page"
        time.sleep(0.2)
