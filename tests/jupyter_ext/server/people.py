"""Who may what in the tests' server: whoever sends a name is signed in, and `reader` may only read."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.auth.identity import IdentityProvider, User

HEADER = "X-Name"


class Names(IdentityProvider):
    """Signs in by a header."""

    @property
    def auth_enabled(self) -> bool:
        """There are people who are nobody."""
        return True

    def get_user(self, handler: Any) -> User | None:
        """Whoever says a name."""
        name = handler.request.headers.get(HEADER)
        return User(name) if name else None


class Readers(Authorizer):
    """Lets one of them read only."""

    def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        """Everybody may everything, but for one."""
        return bool(user.username != "reader" or action == "read" or resource != "bitfusion")
