/* The source of the bindings: see tests/bindings.rs. */
#include <infiniband/verbs.h>
