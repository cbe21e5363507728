"""The pool.toml that a ledger follows: which file it is, whether it is another one now, what stands in it."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.files.pool_folder import configuration_path, file_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.inventory.servers import Server


class ConfigurationFile:
    """The configuration in a pool's folder, or the file that the environment names."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        self._path = configuration_path(folder, environ)
        self._must_exist = "BITFUSION_POOL_CONFIG" in environ
        self._cure = f"correct it, or replace it: bitfusion-pool --dir {folder} simulate"
        if environ.get("BITFUSION_POOL_CONFIG"):
            self._cure = "correct it, or unset BITFUSION_POOL_CONFIG"

    def version(self) -> str:
        """A text that changes whenever the file does; empty if there is none."""
        return file_version(self._path)

    def changed_since(self, known: str | None) -> str | None:
        """Its version if that is another one than a ledger's, which is None in a new ledger; else None.

        A pool whose file is removed keeps its last configuration.
        """
        version = self.version()
        same = known == version or (known is not None and not version)
        return None if same and (version or not self._must_exist) else version

    def read(self, version: str) -> tuple[tuple[Server, ...], Mapping[str, str]]:
        """Its servers and emulation settings; none of both where it has no version. Raises PoolUnreadable."""
        if not (version or self._must_exist):
            return (), {}
        from bitfusion_pool.inventory.configuration import read_configuration

        found = read_configuration(self._path, self._cure)
        return found.servers, found.emulation
