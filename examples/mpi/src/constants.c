/* Constants of mpi.h that rsmpi lacks, or that its bindings name differently for each MPI. Only a C compiler
 * can read them all: one MPI has macros, another enumerators or addresses. */
#include <mpi.h>

const MPI_Op farjump_replace = MPI_REPLACE;
const int farjump_win_unified = MPI_WIN_UNIFIED;

/* Start of MPI_Get_library_version of these constants' MPI. Empty for an unknown one. */
#if defined(OPEN_MPI)
const char *const farjump_headers_of = "Open MPI";
#elif defined(MPICH_VERSION)
const char *const farjump_headers_of = "MPICH";
#else
const char *const farjump_headers_of = "";
#endif
