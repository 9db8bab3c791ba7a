//! Entries: what counts as one, what clients may do to them, times, order and folding.
