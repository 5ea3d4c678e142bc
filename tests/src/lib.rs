//! Oracle, goldens, laws and faults.
