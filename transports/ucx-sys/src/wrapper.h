/* What the bindings are made of: see tests/bindings.rs. */
#include <ucp/api/ucp.h>
