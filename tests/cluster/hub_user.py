"""A user of a JupyterHub, with the browser's cookies and no other rights."""

from __future__ import annotations

import html
import json
import re
import time
import urllib.parse
import urllib.request
from typing import Any

from tests.cluster.served_notebook import JupyterServer
from tests.support.machine import scaled
from tests.support.waiting import wait_until


class HubUser(JupyterServer):
    """Logged in. As a JupyterServer it is that of the user's pod, through the hub's proxy."""

    def __init__(self, hub: str, name: str) -> None:
        super().__init__(f"{hub}/user/{name}")
        self.name = name
        self._hub = f"{hub}/hub"
        self._page("/login", {"username": name, "password": "x", "_xsrf": _proof(self._page("/login"))})

    def headers(self) -> dict[str, str]:
        """The cookies that the user's server sees, and what proves that a request is its page's."""
        request = urllib.request.Request(f"{self.url}/")
        self._cookies.add_cookie_header(request)
        own = [each for each in self._cookies if each.name == "_xsrf" and each.path.startswith("/user/")]
        found = {"Cookie": request.get_header("Cookie") or ""}
        return {**found, "X-XSRFToken": str(own[-1].value)} if own else found

    def profiles(self) -> str:
        """The page on which a user chooses, as text."""
        return self._page("/spawn")

    def choose(self, profile: str = "", **options: str) -> None:
        """Choose one, and press Start; where there are none, the hub shows no form."""
        page = self.profiles()
        if not profile:
            return
        form = f"/spawn/{self.name}?_xsrf={_proof(page)}"
        fields = {f"profile-option-{profile}--{name}": value for name, value in options.items()}
        self._page(form, {"profile": profile, **fields})

    def progress(self, limit_s: float = 60) -> list[dict[str, Any]]:
        """All that the page of the start tells until it is over."""
        request = urllib.request.Request(f"{self._hub}/api/users/{self.name}/server/progress")
        told: list[dict[str, Any]] = []
        end = time.monotonic() + scaled(limit_s)
        with self._opener.open(request, timeout=scaled(limit_s)) as answer:
            for line in answer:  # the hub sends an empty one now and then
                assert time.monotonic() < end, told
                if line.startswith(b"data: "):
                    told.append(json.loads(line[6:]))
                    if told[-1].get("ready") or told[-1].get("failed"):
                        break
        return told

    def wait_open(self) -> None:
        """Until the JupyterLab of the user's pod answers."""
        wait_until(self.answers, f"{self.url} answers", 60)

    def stop(self) -> None:
        """The button *Stop My Server*, until the hub says that it is stopped."""
        self._api("DELETE", f"/users/{self.name}/server")
        wait_until(lambda: not self._api("GET", f"/users/{self.name}")["servers"], "it is stopped", 60)

    def _api(self, method: str, path: str) -> Any:
        token = next(each.value for each in self._cookies if each.name == "_xsrf" and each.path == "/hub/")
        headers = {"X-XSRFToken": str(token), "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._hub}/api{path}", headers=headers, method=method)
        with self._opener.open(request, timeout=scaled(60)) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _page(self, path: str, form: dict[str, str] | None = None) -> str:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self._hub + path, data, {"Sec-Fetch-Mode": "navigate"})
        with self._opener.open(request, timeout=scaled(60)) as answer:
            return str(answer.read().decode())


def _proof(page: str) -> str:
    """By which the hub knows a form for its own: in a hidden field, or in the form's address."""
    found = re.search(r'name="_xsrf"\s+value="([^"]+)"|<form[^>]*_xsrf=([^"&]+)', page)
    assert found, page
    return html.unescape(found[1] or found[2])
