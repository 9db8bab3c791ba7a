//! Custom resource definitions as objects: what is wrong with one, and what is filled in.
