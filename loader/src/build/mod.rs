//! Building ifunc libraries.
