"""The fixture of both suites: farjump's connector, at an owner process of this run."""

import os
import tempfile
from unittest import mock

import pytest

from as_farjump import ADDRESS
from farjump.proxystore import FarjumpConnector


@pytest.fixture(scope="session")
def farjump_connector():
    """A connector, whose owner ends with it."""
    # Not pytest's folder: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="farjump-") as folder:
        os.environ[ADDRESS] = f"unix:{folder}/store"
        connector = FarjumpConnector(os.environ[ADDRESS])
        yield connector
        connector.close(clear=True)
        assert os.listdir(folder) == [], "the owner left something behind"


@pytest.fixture(scope="session", params=["farjump_connector"])
def connectors(request):
    """The fixture of that name in both suites, with farjump's connector alone."""
    connector = request.getfixturevalue(request.param)
    told = RuntimeError("tests that use the fixture do not close its connector")
    with mock.patch.object(connector, "close", side_effect=told):
        yield connector
