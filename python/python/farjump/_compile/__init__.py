"""Functions compiled by Numba, and the code around them."""
