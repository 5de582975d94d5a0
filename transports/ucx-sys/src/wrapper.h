/* The source of the bindings: see tests/bindings.rs. */
#include <ucp/api/ucp.h>
