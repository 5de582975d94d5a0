"""The fixture of both suites: farjump's connector, at an owner process of this run."""

import os
from unittest import mock

import pytest

from as_farjump import ADDRESS
from farjump.proxystore import FarjumpConnector


@pytest.fixture(scope="session")
def farjump_connector(tmp_path_factory):
    """A connector, whose owner ends with it."""
    os.environ[ADDRESS] = f"unix:{tmp_path_factory.mktemp('farjump')}/store"
    connector = FarjumpConnector(os.environ[ADDRESS])
    yield connector
    connector.close(clear=True)


@pytest.fixture(scope="session", params=["farjump_connector"])
def connectors(request):
    """The fixture of that name in both suites, with farjump's connector alone."""
    connector = request.getfixturevalue(request.param)
    told = RuntimeError("tests that use the fixture do not close its connector")
    with mock.patch.object(connector, "close", side_effect=told):
        yield connector
