"""Puts farjump's connector in the place of those of ProxyStore's extensions, whose tests stay as they are."""

import sys

from testing.mocked import pydaos, pymargo, ucp

# As their conftest.py does, before testing.connectors needs them.
sys.modules.update({"pydaos": pydaos, "pymargo": pymargo, "pymargo.bulk": pymargo, "pymargo.core": pymargo, "ucp": ucp})

import testing.connectors  # noqa: E402

from fixtures import addresses, connectors, farjump_connector  # noqa: E402
from report import Report  # noqa: E402

__all__ = ["addresses", "farjump_connector"]

testing.connectors.connectors = connectors


def pytest_configure(config):
    # test_connector_repr and test_connector_config call nothing of the owner.
    config.pluginmanager.register(Report("proxystore_ex", passes=5, least=3))
