//! The program `farjump`.
