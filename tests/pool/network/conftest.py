"""What the tests of the network share."""

from tests.pool.service.conftest import base

__all__ = ["base"]
