"""farjump's connector with the constructors of the two connectors that ProxyStore's tests make themselves.

Each has an owner of its own, like a program's only connector: no other connector keeps the owner from ending. Child
processes of the tests import this module too.
"""

import hashlib
import os
import uuid

from farjump.proxystore import FarjumpConnector

# The folder of the addresses. Not pytest's: the path of a socket must be short.
FOLDER = "FARJUMP_TEST_FOLDER"


def address(name=None):
    """Returns the address of a name; without a name, a new address."""
    name = uuid.uuid4().hex if name is None else str(name)
    return f"unix:{os.environ[FOLDER]}/{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class AsLocal(FarjumpConnector):
    """A connector made like `LocalConnector`, or by its `config`."""

    def __init__(self, store_dict=None, *, include_data_in_config=False, **options):
        assert store_dict is None, "objects of a dictionary would not be at the owner"
        options.setdefault("address", address())
        super().__init__(**options)


class AsFile(FarjumpConnector):
    """A connector made like `FileConnector`, with a folder that exists and stays empty, or by its `config`."""

    def __init__(self, store_dir=None, *, clear=True, buffering=-1, **options):
        if store_dir is not None:
            self.store_dir = os.path.abspath(store_dir)
            os.makedirs(self.store_dir, exist_ok=True)
            options.setdefault("address", address(self.store_dir))
        super().__init__(**options)
