"""A headless Chromium that tests drive over the pipe of its DevTools protocol; it needs no driver and no package.

https://chromedevtools.github.io/devtools-protocol/ has the methods and the events.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECONDS = 200
"""How long a test waits for an answer, or for something to appear."""

# What a person sees: the text of all elements that are drawn, those in shadow roots included.
_TEXT = """
(function text(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.data.trim() ? [node.data.trim()] : [];
  if (["SCRIPT", "STYLE", "TEMPLATE", "TITLE"].includes(node.nodeName.toUpperCase())) return [];
  if (node.checkVisibility && getComputedStyle(node).display !== "contents" && !node.checkVisibility()) return [];
  const children = node.shadowRoot ? node.shadowRoot.childNodes
                 : node.assignedNodes && node.assignedNodes().length ? node.assignedNodes() : node.childNodes;
  return [...children].flatMap(text);
})(document.body).join("\\n")
"""
# querySelectorAll that looks into shadow roots.
_ALL = """
const all = (root, selector) => [
  ...root.querySelectorAll(selector),
  ...[...root.querySelectorAll("*")].flatMap(e => e.shadowRoot ? all(e.shadowRoot, selector) : []),
];
"""


class Browser:
    """A Chromium of its own profile with one page. It resolves no host name, so it reaches nothing but loopback.

    Attributes:
        complaints: errors and warnings of the console, and exceptions of scripts, since the page was opened.
        requests: addresses that the page asked for since then.
    """

    def __init__(self, profile: Path) -> None:
        chromium = shutil.which("chromium")
        if chromium is None:
            pytest.skip("no browser: install the package chromium (apt-get install chromium)")
        there_read, self._write = os.pipe()
        self._read, there_write = os.pipe()
        flags = (
            "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run", "--disable-gpu",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
            "--window-size=1400,1600", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--no-sandbox",  # it cannot be made as root, nor in most containers; the pages are the project's own
        )  # fmt: skip
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        command = f'exec "$@" 3<&{there_read} 4>&{there_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", chromium, *flags],
            pass_fds=(there_read, there_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there_read)
        os.close(there_write)
        self._unread, self._calls, self._session = b"", 0, ""
        self._loaded = False
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Opens a page and waits until it is loaded."""
        self._call("Page.navigate", url="about:blank")  # an address that differs in its #part only loads nothing
        self.complaints, self.requests, self._loaded = [], [], False
        assert "errorText" not in self._call("Page.navigate", url=address)
        self.wait(lambda: self.evaluate("document.readyState") == "complete" and self._loaded)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self) -> str:
        """The text that is drawn, a line for each piece."""
        return str(self.evaluate(_TEXT))

    def of_all(self, selector: str, expression: str) -> Any:
        """The values of an expression in `e`, over the elements of a CSS selector, also in shadow roots.

        In the expression, `all(root, selector)` finds elements in the same way.
        """
        return self.evaluate(f"{{ {_ALL} all(document, {json.dumps(selector)}).map(e => ({expression})) }}")

    def wait(self, happens: Callable[[], Any]) -> Any:
        """The first true value of `happens`. Fails after `SECONDS`."""
        end = time.monotonic() + SECONDS
        while not (found := happens()):
            assert time.monotonic() < end, f"not seen within {SECONDS} s; the page shows:\n{self.text()}"
            time.sleep(0.1)
        return found

    def wait_for(self, *texts: str) -> str:
        """The text of the page, as soon as it has all of these."""

        def shown() -> str | None:
            text = self.text()
            return text if all(part in text for part in texts) else None

        return str(self.wait(shown))

    def close(self) -> None:
        """Ends the browser."""
        self._session = ""
        try:
            self._call("Browser.close")
            self._process.wait(120)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._read)
            os.close(self._write)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result. Keeps the events that come before it."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._calls:
            self._keep(answer.get("method", ""), answer.get("params", {}))
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select.select([self._read], [], [], SECONDS)[0], f"Chromium gave no answer within {SECONDS} s"
            part = os.read(self._read, 1 << 16)
            assert part, "Chromium has ended"
            self._unread += part
        whole, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(whole)
        return message

    def _keep(self, event: str, parameters: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif event == "Log.entryAdded" and parameters["entry"]["level"] in ("warning", "error"):
            self.complaints.append(parameters["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and parameters["type"] in ("warning", "error", "assert"):
            self.complaints.append(json.dumps(parameters["args"]))
