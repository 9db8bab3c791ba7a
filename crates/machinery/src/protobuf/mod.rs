//! Kubernetes' protobuf, for built-in kinds: a second spelling of the same objects, read into and written from JSON
//! values along the table of types. There are no structs in between.
//!
//! `decode` gives what Go's JSON encoder would write for the decoded struct, `encode` gives the bytes Go would write
//! for the struct decoded from that JSON: fields in order of number, scalars that are no pointers always, map entries
//! sorted. Bytes come from anybody: reading is linear in their number, bounded in depth and in what it makes of them.

mod decode;
mod encode;
pub mod envelope;
mod layout;
mod leaf;
mod schema_props;
mod wire;

#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::encode;
pub(crate) use layout::{Field, Message, MessageId, Presence, Shape, Union};
pub use layout::{Layout, MessageRef};

/// The media type of enveloped messages.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Bytes that are no message of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    #[error("proto: wrong wireType = {wire} for field {field}")]
    Wire { wire: u8, field: String },
    #[error("proto: unexpected end of group")]
    Group,
    #[error("field {field}: {problem}")]
    Value { field: String, problem: String },
    #[error("exceeded max depth")]
    Depth,
    #[error("the message is too large for its kind")]
    Work,
    #[error("{0}")]
    Envelope(&'static str),
}
