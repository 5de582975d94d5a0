"""The fixtures of both suites: a folder for addresses, and farjump's connector at an owner process of this run."""

import os
import tempfile
import time
from unittest import mock

import pytest

from as_farjump import FOLDER, address
from farjump.proxystore import FarjumpConnector


@pytest.fixture(scope="session", autouse=True)
def addresses():
    """Makes the folder of the addresses. At its end no owner is left."""
    with tempfile.TemporaryDirectory(prefix="fj") as folder, mock.patch.dict(os.environ, {FOLDER: folder}):
        yield
        until = time.monotonic() + 20
        while os.listdir(folder) and time.monotonic() < until:
            time.sleep(0.01)
        assert os.listdir(folder) == [], "an owner is left"


@pytest.fixture(scope="session")
def farjump_connector(addresses):
    """Makes a connector. Its owner ends with it."""
    with FarjumpConnector(address()) as connector:
        yield connector


@pytest.fixture(scope="session", params=["farjump_connector"])
def connectors(request):
    """Replaces the fixture of that name in both suites. Has farjump's connector alone."""
    connector = request.getfixturevalue(request.param)
    told = RuntimeError("tests that use the fixture do not close its connector")
    with mock.patch.object(connector, "close", side_effect=told):
        yield connector
