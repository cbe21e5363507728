"""Who may what in the tests' server: whoever sends a name is signed in, and two may not do all."""

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


MAY_NOT = {"reader": "execute", "stranger": "read"}


class Readers(Authorizer):
    """Lets everybody do everything, but for two, and our resource."""

    def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        """One action is missing to each of the two."""
        return resource != "bitfusion" or MAY_NOT.get(user.username) != action
