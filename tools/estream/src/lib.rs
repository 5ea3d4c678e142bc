//! EStream.
