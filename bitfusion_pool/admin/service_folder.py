"""The folder of the pool whose tokens and certificates an administrator changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.ledger.files.complaints import cannot_write
from bitfusion_pool.ledger.files.pool_folder import ensure_folder, pool_folder
from bitfusion_pool.own_files import NotOurs

if TYPE_CHECKING:
    from collections.abc import Mapping


def service_folder(environ: Mapping[str, str]) -> str:
    """Its path without symbolic links; it is made if it is not there.

    Raises:
        PoolUnreadable: It is not this user's alone, also where this user is root, or cannot be made.
    """
    folder = pool_folder(environ)
    try:
        return ensure_folder(folder, environ)
    except NotOurs as error:
        raise PoolUnreadable(
            "",
            f"pool folder {folder} is not yours alone: {error.strerror}",
            "run this as the user whose pool it is: sudo -u USER bitfusion-pool …",
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from None
