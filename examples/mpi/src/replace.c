/* What rsmpi has no constant for: in mpi.h it may be anything that C takes as an initial value. */
#include <mpi.h>

const MPI_Op farjump_replace = MPI_REPLACE;
