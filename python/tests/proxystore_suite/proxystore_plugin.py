"""Replaces the connectors that ProxyStore's tests use by farjump's. The tests stay as they are.

Given by `-p`, it is loaded before their conftest.py. That takes its fixtures from modules that are changed here.
"""

import uuid

import proxystore.connectors.file
import proxystore.connectors.local
import pytest
import testing.connectors
import testing.stores
from proxystore.store import Store, store_registration

from as_farjump import AsFile, AsLocal
from fixtures import addresses, connectors, farjump_connector
from report import Report

__all__ = ["addresses", "farjump_connector"]


@pytest.fixture
def store(addresses):
    """Replaces the fixture of that name. Has farjump's connector."""
    with Store(str(uuid.uuid4()), AsLocal(), cache_size=0) as store, store_registration(store):
        yield store


testing.connectors.connectors, testing.stores.store = connectors, store
proxystore.connectors.local.LocalConnector = AsLocal
proxystore.connectors.file.FileConnector = AsFile


def pytest_configure(config):
    config.pluginmanager.register(Report("proxystore", passes=209, least=127))
