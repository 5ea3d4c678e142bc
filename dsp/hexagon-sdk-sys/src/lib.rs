//! Declarations of what a Hexagon protection domain provides; no logic.
#![no_std]
