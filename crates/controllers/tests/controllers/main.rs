//! Controllers in a whole server on a memory store, seen as their users see them: over HTTP.

mod gc;
mod simulation;
