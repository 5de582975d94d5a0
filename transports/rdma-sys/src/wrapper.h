/* What the bindings are made of: see tests/bindings.rs. */
#include <infiniband/verbs.h>
