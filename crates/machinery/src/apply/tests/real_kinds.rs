//! Built-in kinds, as clients see them.
