//! Reading ifunc libraries without running anything.
