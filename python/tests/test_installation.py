"""The package without Numba, and with another version of it."""

import importlib.metadata
import importlib.util
import unittest

import farjump
from support import WithTarget, python


class Installation(WithTarget):
    def test_the_version_is_that_of_the_installed_package(self):
        self.assertEqual(farjump.__version__, importlib.metadata.version("farjump"))

    def test_a_transport_the_wheel_lacks_is_refused_without_build_advice(self):
        with self.assertRaisesRegex(farjump.ConnectError, "this build of farjump lacks it") as caught:
            farjump.Link(self.address, transport="ucx-put")
        self.assertNotIn("--features", str(caught.exception))

    def test_without_numba_the_rest_works_and_the_decorator_names_it(self):
        script = (
            "import sys\nsys.modules['numba'] = None\nimport farjump\n"
            "try:\n    farjump.ifunc('f8 -> f8')\nexcept farjump.IfuncError as error:\n    print(error)\n"
            "from support import library\n"
            "print(farjump.Link(sys.argv[1]).call(library('echo'), b'rest', timeout=10))"
        )
        output = self.ends(python(script, self.address))
        self.assertIn("pip install 'farjump[numba]'", output)
        self.assertIn("b'rest'", output)

    @unittest.skipIf(importlib.util.find_spec("numba") is None, "there is no Numba")
    def test_numba_is_imported_when_a_function_is_compiled(self):
        script = (
            "import sys, farjump\nf = farjump.ifunc('f8 -> f8')(lambda x: x + 1)\n"
            "print('numba' in sys.modules, 'numpy' in sys.modules)\n"
            "print(farjump.Link(sys.argv[1]).call(f, 1.5, timeout=10))\n"
            "import numba; numba.__version__ = '0.67.2'\n"
            "try:\n    farjump.ifunc('f8 -> f8')(lambda x: x).library\nexcept farjump.IfuncError as error:\n    print(error)\n"
        )
        output = self.ends(python(script, self.address))
        self.assertRegex(output, r"False False\n2.5\nnumba 0.67.2 is installed.*0.68: pip install 'farjump\[numba\]'")


if __name__ == "__main__":
    unittest.main()
