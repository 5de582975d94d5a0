"""farjump's connector with the constructors of the two connectors that ProxyStore's tests make themselves.

Child processes of the tests import this module, too.
"""

import os
import shutil

from farjump.proxystore import FarjumpConnector

# The address of the owner of the tests.
ADDRESS = "FARJUMP_TEST_OWNER"


class AsLocal(FarjumpConnector):
    """Made like `LocalConnector`."""

    def __init__(self, store_dict=None, *, include_data_in_config=False):
        assert store_dict is None, "objects of a dictionary would not be at the owner"
        self.include_data_in_config = include_data_in_config
        super().__init__(os.environ[ADDRESS])

    def config(self):
        return {"include_data_in_config": self.include_data_in_config}


class AsFile(FarjumpConnector):
    """Made like `FileConnector`, with a folder that is there and stays empty."""

    def __init__(self, store_dir, *, clear=True, buffering=-1):
        self.store_dir, self.removes, self.buffering = os.path.abspath(store_dir), clear, buffering
        os.makedirs(self.store_dir, exist_ok=True)
        super().__init__(os.environ[ADDRESS])

    def config(self):
        return {"store_dir": self.store_dir, "clear": self.removes, "buffering": self.buffering}

    def close(self, clear=None):
        # The owner is that of all tests.
        super().close(clear=False)
        if self.removes if clear is None else clear:
            shutil.rmtree(self.store_dir, ignore_errors=True)
