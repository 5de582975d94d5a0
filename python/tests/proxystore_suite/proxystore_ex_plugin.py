"""Replaces the connectors of ProxyStore's extensions by farjump's. The tests of the extensions stay as they are."""

import sys

from testing.mocked import pydaos, pymargo, ucp

# Like their conftest.py, before testing.connectors needs them.
sys.modules.update({"pydaos": pydaos, "pymargo": pymargo, "pymargo.bulk": pymargo, "pymargo.core": pymargo, "ucp": ucp})

import testing.connectors  # noqa: E402

from fixtures import addresses, connectors, farjump_connector  # noqa: E402
from report import Report  # noqa: E402

__all__ = ["addresses", "farjump_connector"]

testing.connectors.connectors = connectors


def pytest_configure(config):
    # test_connector_repr and test_connector_config make no call to the owner.
    config.pluginmanager.register(Report("proxystore_ex", passes=5, least=3))
