"""nearest - the row of a matrix that is nearest to a vector, for `ifuncs/python/numba_ifunc.py`:

    python3 numba_ifunc.py nearest.py:nearest 'int64(float32[::1], float32[::1])' -o libnearest.so
"""


def nearest(rows, query):
    """Returns the number of the nearest row. Rows are as long as the query."""
    width = len(query)
    if width == 0 or len(rows) < width:
        raise ValueError("there are no rows of that length")
    best, least = 0, float("inf")
    for row in range(len(rows) // width):
        distance = 0.0
        for column in range(width):
            difference = rows[row * width + column] - query[column]
            distance += difference * difference
        if distance < least:
            best, least = row, distance
    return best
