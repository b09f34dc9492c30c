//! merkle
