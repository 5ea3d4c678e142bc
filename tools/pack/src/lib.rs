//! GGUF to pack.
