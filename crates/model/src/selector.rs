//! Placeholder: see the agent.
