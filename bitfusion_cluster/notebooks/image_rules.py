"""Image rules, which client fits which image: the admin's images.yaml, read again when it has changed."""

from __future__ import annotations

from collections.abc import Sequence

from bitfusion_client.kubernetes.client_images import ANY, ImageRule, parse_image_rules
from bitfusion_cluster.program.yaml_file import YamlFile

SETTING = "--images"


class ImageRulesFile(YamlFile[Sequence[ImageRule]]):
    """The rules in force; without a file the built-in ones. `clients` is one of `CLIENT_LISTS`."""

    def __init__(self, path: str | None, clients: str = ANY) -> None:
        super().__init__(
            SETTING, path, "image rules", lambda data, source: parse_image_rules(data, source, clients)
        )

    @property
    def rules(self) -> Sequence[ImageRule]:
        """The rules in force; the same object as long as they do not change."""
        return self.value
