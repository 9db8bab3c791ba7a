//! What of the audit trail is the registry's business: the rules that say what is noted. Who notes, writes and keeps is the
//! server's; how planes read what is kept is [`crate::ledger`].

pub mod policy;
