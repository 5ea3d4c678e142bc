//! The host shim.
