"""Symbols of Numba's runtime that functions may need and no target has, and the constructs that need them."""

from __future__ import annotations

BLAS = "Numba calls BLAS for `np.dot`, `@` and `np.linalg.norm`: write the sum of products as a loop"
_LAPACK = "Numba calls LAPACK for `np.linalg`: compute that before, and pass the result"
_MEMORY = "it allocates memory: make no arrays (as `np.cumsum(a)` and `a * 2` do), lists, dicts, sets or strings in the function"
_RANDOM = "it draws random numbers: pass a seed or numbers to the function"
_PYTHON = "it uses objects of Python's: print nothing, and use no objmode"
_MATHS = "it is a helper of Numba's runtime for mathematics that the C library lacks: compute that before, and pass the result"

#: Prefixes of names, and the purpose of such a symbol. Of several symbols that a function needs, the first one here is the
#: most telling.
_NEEDS = {
    ".numba.unresolved$": (
        "it calls itself through a function that has other options of `@farjump.ifunc`: give all of them the same options"
    ),
    "__svml": "Numba was set up with Intel's SVML: set NUMBA_DISABLE_INTEL_SVML=1",
    **dict.fromkeys(("numba_xxdot", "numba_xxgemv", "numba_xxgemm", "numba_xxnrm2"), BLAS),
    **dict.fromkeys(("numba_ez_", "numba_xx", "numba_xgesv"), _LAPACK),
    **dict.fromkeys(("numba_dict_", "numba_set_", "numba_list_"), _MEMORY),
    # Those of arrays, and of lists and sets. Exceptions with computed values use others.
    **dict.fromkeys(("NRT_MemInfo_alloc_aligned", "NRT_MemInfo_new", "NRT_MemInfo_varsize"), _MEMORY),
    "PyErr_SetString": "it raises with values that it computes: raise with constants alone",
    **dict.fromkeys(("numba_rnd", "numba_get_np_random_state", "numba_poisson"), _RANDOM),
    **dict.fromkeys(("numba_gil", "numba_unpickle", "Py", "_Py"), _PYTHON),
    "numba_attempt_nocopy_reshape": (
        "it is a helper of Numba's runtime for `np.max`, `np.min`, `ravel` and `reshape`: write a loop over the items, or pass "
        "the array in the shape that is needed"
    ),
    **dict.fromkeys(("numba_gamma", "numba_frexp", "numba_ldexp", "numba_cpow", "numba_nextafter"), _MATHS),
    "NRT_": _MEMORY,
    "numba_": "it is a helper of Numba's runtime: compute that before, and pass the result",
}


def what(name: str) -> str | None:
    """Returns the purpose of a symbol; None for one that a target may have."""
    return next((why for start, why in _NEEDS.items() if name.startswith(start)), None)


def cause(names: list[str]) -> tuple[str, str]:
    """Returns the most telling one of these symbols, and its purpose."""
    for start, why in _NEEDS.items():
        for name in names:
            if name.startswith(start):
                return name, why
    raise LookupError(f"none of {names} is of a runtime")
